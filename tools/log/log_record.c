/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/log/log_record.h"
#include <inttypes.h>
#include <string.h>

enum kind { TEXT, COUNT, TIME, RANK, FLAG, REAL, ANY };
static const int64_t most = (int64_t)1 << 62, most_time = (int64_t)1 << 60; /* sums and differences do not overflow */

static const struct {
    const char *name;
    enum kind kind;
    const char *doc;
} fields[] = {
#define X(id, name, kind, doc) {name, kind, doc},
#include "tools/log/log_fields.def"
#undef X
};

static const struct {
    const char *name, *must, *may;
} events[] = {
#define X(id, name, must, may) {name, must, may},
#include "tools/log/log_events.def"
#undef X
};

static const char *const forms[] = {"a text",
                                    "a whole number from 0 to 2^62",
                                    "nanoseconds, from 0 to 2^60",
                                    "a whole number from -1 to 65535",
                                    "0 or 1",
                                    "a number",
                                    "a number or a text"};

static void tell_value(struct log_reader *r, const struct log_record *record, enum log_field f, const json_t *value)
{
    char shown[48] = "null", *json = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    if (json)
        log_printable(shown, sizeof shown, json, strlen(json));
    free(json);
    log_problem(r, record->line, "field \"%s\" is %s, expected %s", fields[f].name, shown, forms[fields[f].kind]);
}

static bool set_number(struct log_record *record, enum log_field f, const json_t *value)
{
    int64_t n = json_is_boolean(value) ? json_is_true(value) : json_integer_value(value);
    if (!json_is_integer(value) && !(fields[f].kind == FLAG && json_is_boolean(value)))
        return false;
    switch (fields[f].kind) {
    case RANK:
        if (n < -1 || n > 65535)
            return false;
        break;
    case TIME:
        if (n < 0 || n > most_time)
            return false;
        break;
    default:
        if (n < 0 || n > most)
            return false;
    }
    record->num[f] = n;
    return true;
}

static bool set_real(struct log_record *record, enum log_field f, const json_t *value)
{
    double x = json_number_value(value);
    if (!json_is_number(value) || !(x >= 0 && x < 4e9))
        return false;
    record->num[f] = (int64_t)(x * 1e9);
    return true;
}

static bool set_any(struct log_record *record, enum log_field f, const json_t *value, struct log_record_texts *texts)
{
    if (json_is_string(value)) {
        record->text[f] = json_string_value(value);
        return true;
    }
    if (!json_is_integer(value))
        return false;
    snprintf(texts->number[f], sizeof texts->number[f], "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    record->text[f] = texts->number[f];
    return true;
}

static bool set(struct log_record *record, enum log_field f, const json_t *value, struct log_record_texts *texts)
{
    switch (fields[f].kind) {
    case TEXT:
        record->text[f] = json_string_value(value);
        return record->text[f] != NULL;
    case ANY:
        return set_any(record, f, value, texts);
    case REAL:
        return set_real(record, f, value);
    default:
        return set_number(record, f, value);
    }
}

static enum log_field find_field(const char *name, size_t len)
{
    for (unsigned f = 0; f < F_FIELDS; f++)
        if (strlen(fields[f].name) == len && memcmp(fields[f].name, name, len) == 0)
            return (enum log_field)f;
    return F_FIELDS;
}

static bool take(struct log_reader *r, const json_t *object, struct log_record *record, struct log_record_texts *texts,
                 enum log_field f, bool must)
{
    const json_t *value = json_object_get(object, fields[f].name);
    record->has[f] = value && set(record, f, value, texts);
    if (record->has[f])
        return true;
    if (value)
        tell_value(r, record, f, value);
    else if (must)
        log_problem(r, record->line, "no field \"%s\", expected %s", fields[f].name, forms[fields[f].kind]);
    return !must;
}

static bool take_list(struct log_reader *r, const json_t *object, struct log_record *record,
                      struct log_record_texts *texts, const char *list, bool must)
{
    bool good = true;
    while (good && *list) {
        size_t len = strcspn(list, " ");
        good = take(r, object, record, texts, find_field(list, len), must);
        list += len + (list[len] == ' ');
    }
    return good;
}

static bool ordered(struct log_reader *r, const struct log_record *record)
{
    if (record->has[F_BEGIN] && record->has[F_END] && record->num[F_END] < record->num[F_BEGIN]) {
        log_problem(r, record->line, "field \"end\" is %" PRId64 ", expected no less than \"begin\", %" PRId64,
                    record->num[F_END], record->num[F_BEGIN]);
        return false;
    }
    if (record->has[F_CRANK] && record->num[F_NRANKS] > 0 && record->num[F_CRANK] >= record->num[F_NRANKS]) {
        log_problem(r, record->line, "field \"crank\" is %" PRId64 ", expected less than \"nranks\", %" PRId64,
                    record->num[F_CRANK], record->num[F_NRANKS]);
        return false;
    }
    return true;
}

bool log_record_parse(struct log_reader *r, const json_t *object, struct log_record *record,
                      struct log_record_texts *texts)
{
    if (!take_list(r, object, record, texts, "event ts host pid", true) ||
        !take_list(r, object, record, texts, "wall rank level", false))
        return false;
    record->event = E_OTHER;
    for (unsigned e = 0; e < E_OTHER; e++)
        if (strcmp(events[e].name, record->text[F_EVENT]) == 0)
            record->event = (enum log_event)e;
    if (record->event == E_OTHER)
        return true;
    return take_list(r, object, record, texts, events[record->event].must, true) &&
           take_list(r, object, record, texts, events[record->event].may, false) && ordered(r, record);
}

void log_print_interface(FILE *out)
{
    fputs("| line | has always | is read when it is there |\n| --- | --- | --- |\n", out);
    for (unsigned e = 0; e < E_OTHER; e++)
        fprintf(out, "| `%s` | %s | %s |\n", events[e].name, events[e].must, events[e].may);
    fputs("\n| field | form | meaning |\n| --- | --- | --- |\n", out);
    for (unsigned f = 0; f < F_FIELDS; f++)
        fprintf(out, "| `%s` | %s | %s |\n", fields[f].name, forms[fields[f].kind], fields[f].doc);
}
