/* SPDX-License-Identifier: Apache-2.0 */
/* What completes the launcher's commands in a shell, out of their tables and that of the settings. */
#include "tools/tables/tables.h"
#include <string.h>
#include "base/settings.h"
#include "tools/common/options_help.h"

/* What stands where a value does, or behind the options. */
enum wanted { NOTHING, ANYTHING, FILES, FOLDERS, SETTINGS, COMMANDS };

static enum wanted value_of(const struct option_row *row)
{
    if (!*row->value || *row->value == '[')
        return NOTHING;
    if (!strncmp(row->value, "FILE", 4))
        return FILES;
    if (!strcmp(row->value, "DIR") || !strcmp(row->value, "FOLDER"))
        return FOLDERS;
    return !strcmp(row->value, "NAME=VALUE") ? SETTINGS : ANYTHING;
}

/* Out of its synopsis. */
static enum wanted rest_of(const struct option_row *command)
{
    return strstr(command->value, "COMMAND [ARG]") ? COMMANDS : strstr(command->value, "FILE|FOLDER") ? FILES : NOTHING;
}

/* A command whose synopsis is nothing but the words that it takes. */
static bool takes_words(const struct option_row *command)
{
    return command->value[strspn(command->value, "abcdefghijklmnopqrstuvwxyz|")] == '\0';
}

static void put_words(FILE *out, const char *choices, const char *before)
{
    for (size_t n; *choices; choices += n + (choices[n] == '|')) {
        n = strcspn(choices, "|");
        fprintf(out, "%s%.*s", before, (int)n, choices);
    }
}

/* The beginning of its meaning, within single quotes; `escaped`: what this shell would take for its own there. */
static void put_help(FILE *out, const char *help, const char *escaped)
{
    const char *end = strpbrk(help, ".:;");
    while (end && end[1] && end[1] != ' ')
        end = strpbrk(end + 1, ".:;");
    for (; *help && help != end; help++) {
        if (strchr(escaped, *help))
            putc('\\', out);
        fputs(*help == '\'' ? "'\\''" : (char[]){*help, '\0'}, out);
    }
}

/* "LOG=off LOG=error": each setting with its values, or with what stands before any. */
static void put_settings(FILE *out)
{
    for (int i = 0; i < SLR_S_COUNT; i++) {
        const struct slr_setting_row *row = &slr_setting_rows[i];
        char before[SLR_SETTING_NAME_SIZE + 2];
        snprintf(before, sizeof before, " %s=", row->name);
        if (row->kind == SLR_KIND_BOOL || row->kind == SLR_KIND_CHOICE)
            put_words(out, row->kind == SLR_KIND_BOOL ? "on|off" : row->choices, before);
        else
            fputs(before, out);
    }
}

static void put_commands(FILE *out)
{
    for (const struct option_row *row = command_rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_COMMAND)
            fprintf(out, " %s", command_name(row));
}

/* ---- bash ---- */

/* Words are taken from the line: readline cuts them at = as well, and wants what is behind the last one. */
static const char bash_code[] =
    "_slipring() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} words=() cur what=options lead='' options='' valued='' rest='' i\n"
    "    read -ra words <<<\"$line\"\n"
    "    [[ $line != *[[:space:]] ]] || words+=('')\n"
    "    local last=$((${#words[@]} - 1))\n"
    "    cur=${words[last]} COMPREPLY=()\n"
    "    _slipring_of \"$([[ $last == 1 ]] || echo \"${words[1]}\")\"\n"
    "    for ((i = 2; i < last; i++)); do\n"
    "        if [[ \" $valued \" == *\" ${words[i]}:\"* ]]; then\n"
    "            what=${valued#*\"${words[i]}:\"} what=${what%% *}\n"
    "            ((++i == last)) || what=options\n"
    "        elif [[ ${words[i]} != -?* || ${words[i]} == -- ]]; then\n"
    "            what=$rest\n"
    "            [[ $rest == commands && (${words[i]} != -- || $i -lt $((last - 1))) ]] && what=files\n"
    "            break\n"
    "        fi\n"
    "    done\n"
    "    if [[ $what == options && $cur == --*=* && \" $valued \" == *\" ${cur%%=*}:\"* ]]; then\n"
    "        lead=${cur%%=*}= what=${valued#*\"${cur%%=*}:\"} what=${what%% *} cur=${cur#*=}\n"
    "    elif [[ $what == options && $cur != -* && -n $rest ]]; then\n"
    "        what=$rest\n"
    "    elif [[ $what == files && $rest == files && $cur == -* ]]; then\n"
    "        what=options\n"
    "    fi\n"
    "    local found=''\n"
    "    case $what in\n"
    "    options) found=$(compgen -W \"$options\" -- \"$cur\") ;;\n"
    "    files) found=$(compgen -f -- \"$cur\") ;;\n"
    "    folders) found=$(compgen -d -- \"$cur\") ;;\n"
    "    commands) found=$(compgen -c -- \"$cur\"; compgen -f -- \"$cur\") ;;\n"
    "    settings)\n"
    "        [[ ${cur%%=*} != *[a-z]* ]] || _slipring_settings=${_slipring_settings,,}\n"
    "        found=$(compgen -W \"$_slipring_settings\" -- \"$cur\")\n"
    "        [[ $cur == *=* ]] || found=$(sed 's/=.*/=/' <<<\"$found\" | uniq)\n"
    "        [[ $found != *= ]] || compopt -o nospace 2>/dev/null\n"
    "        ;;\n"
    "    esac\n"
    "    case $what in files | folders | commands) compopt -o filenames 2>/dev/null ;; esac\n"
    "    [[ -n $found ]] || return 0\n"
    "    mapfile -t COMPREPLY <<<\"$found\"\n"
    "    COMPREPLY=(\"${COMPREPLY[@]/#/$lead}\")\n"
    "    local typed=${words[last]}\n"
    "    [[ $COMP_WORDBREAKS != *=* || $typed != *=* ]] || COMPREPLY=(\"${COMPREPLY[@]#\"${typed%=*}=\"}\")\n"
    "}\n"
    "complete -F _slipring slipring\n";

static const char *const bash_wanted[] = {[NOTHING] = "",        [ANYTHING] = "anything", [FILES] = "files",
                                          [FOLDERS] = "folders", [SETTINGS] = "settings", [COMMANDS] = "commands"};

static void bash_command(FILE *out, const struct option_row *command)
{
    char name[OPTION_ROOM];
    fprintf(out, "    %s)\n        options='--help", command_name(command));
    if (takes_words(command))
        put_words(out, command->value, " ");
    for (const struct option_row *row = command + 1; row->kind >= OPTION_PARAGRAPH; row++)
        if (is_option(row))
            fprintf(out, " %s", option_name(row, name, sizeof name));
    fputs("'\n        valued='", out);
    for (const struct option_row *row = command + 1; row->kind >= OPTION_PARAGRAPH; row++)
        if (is_option(row) && value_of(row) != NOTHING)
            fprintf(out, "%s:%s ", option_name(row, name, sizeof name), bash_wanted[value_of(row)]);
    fprintf(out, "'\n        rest='%s'\n        ;;\n", bash_wanted[rest_of(command)]);
}

static void bash(FILE *out)
{
    fputs("# For bash.\n_slipring_of() {\n    _slipring_settings='", out);
    put_settings(out);
    fputs("'\n    case $1 in\n", out);
    for (const struct option_row *row = command_rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_COMMAND)
            bash_command(out, row);
    fputs("    '') options='--help --version", out);
    put_commands(out);
    fputs("' ;;\n    esac\n}\n", out);
    fputs(bash_code, out);
}

/* ---- zsh ---- */

static const char *const zsh_action[] = {[NOTHING] = "",
                                         [ANYTHING] = " ",
                                         [FILES] = "_files",
                                         [FOLDERS] = "_files -/",
                                         [SETTINGS] = "_slipring_settings",
                                         [COMMANDS] = "_normal"};

static void zsh_option(FILE *out, const struct option_row *row)
{
    char name[OPTION_ROOM];
    const bool attached = *row->value == '[', repeats = row->kind == OPTION_LIST || row->kind == OPTION_PASS;
    option_name(row, name, sizeof name);
    fprintf(out, " \\\n            '%s%s%s[", repeats ? "*" : "", name,
            attached                        ? "=-"
            : *row->value && name[1] == '-' ? "="
                                            : "");
    put_help(out, row->help, "[]:");
    fputs("]", out);
    if (attached)
        fputs("::devices: ", out);
    else if (value_of(row) != NOTHING)
        fprintf(out, ":%s:%s", row->value, zsh_action[value_of(row)]);
    fputs("'", out);
}

static void zsh_command(FILE *out, const struct option_row *command)
{
    fprintf(out, "    %s)\n        _arguments -S '(-h --help)'{-h,--help}'[help]'", command_name(command));
    for (const struct option_row *row = command + 1; row->kind >= OPTION_PARAGRAPH; row++)
        if (is_option(row))
            zsh_option(out, row);
    if (takes_words(command)) {
        fputs(" \\\n            '1: :(", out);
        put_words(out, command->value, " ");
        fputs(" )'", out);
    }
    if (rest_of(command) == COMMANDS)
        fputs(" \\\n            '(-)1: :_command_names -e' '*:: :_normal'", out);
    else if (rest_of(command) != NOTHING)
        fprintf(out, " \\\n            '*: :%s'", zsh_action[rest_of(command)]);
    fputs("\n        ;;\n", out);
}

static void zsh(FILE *out)
{
    fputs("#compdef slipring\n# For zsh.\n_slipring_settings() {\n    local -a all=(", out);
    put_settings(out);
    fputs(" )\n    compadd -M 'm:{a-z}={A-Z}' -S '' -- $all\n}\n_slipring() {\n    local -a subcommands=(\n", out);
    for (const struct option_row *row = command_rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_COMMAND) {
            fprintf(out, "        '%s:", command_name(row));
            put_help(out, row->help, ":");
            fputs("'\n", out);
        }
    fputs("    )\n    if (( CURRENT == 2 )); then\n        _describe command subcommands\n"
          "        compadd -- --help --version\n        return\n    fi\n"
          "    shift words\n    (( CURRENT-- ))\n    case $words[1] in\n",
          out);
    for (const struct option_row *row = command_rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_COMMAND)
            zsh_command(out, row);
    /* As a file of fpath it is the function itself; by eval it is not. */
    fputs("    esac\n}\n"
          "if [[ $funcstack[1] == _slipring ]]; then\n    _slipring \"$@\"\nelse\n    compdef _slipring slipring\nfi\n",
          out);
}

/* ---- fish ---- */

static const char *const fish_value[] = {[NOTHING] = "",
                                         [ANYTHING] = " -x",
                                         [FILES] = " -r -F",
                                         [FOLDERS] = " -x -a '(__fish_complete_directories)'",
                                         [SETTINGS] = " -x -a \"$slipring_settings\"",
                                         [COMMANDS] = ""};

static void fish_command(FILE *out, const struct option_row *command)
{
    char name[OPTION_ROOM], of[OPTION_ROOM];
    snprintf(of, sizeof of, "complete -c slipring -n '__fish_seen_subcommand_from %s'", command_name(command));
    fprintf(out, "complete -c slipring -n __fish_use_subcommand -a %s -d '", command_name(command));
    put_help(out, command->help, "");
    fprintf(out, "'\n%s -s h -l help -d 'help'\n", of);
    for (const struct option_row *row = command + 1; row->kind >= OPTION_PARAGRAPH; row++) {
        if (!is_option(row))
            continue;
        option_name(row, name, sizeof name);
        fprintf(out, "%s -%c %s%s -d '", of, name[1] == '-' ? 'l' : 's', name + (name[1] == '-' ? 2 : 1),
                fish_value[value_of(row)]);
        put_help(out, row->help, "");
        fputs("'\n", out);
    }
    if (takes_words(command)) {
        fprintf(out, "%s -a '", of);
        put_words(out, command->value, " ");
        fputs("'\n", out);
    }
    if (rest_of(command) == COMMANDS)
        fprintf(out, "%s -x -a '(__fish_complete_subcommand --fcs-skip=2)'\n", of);
    else if (rest_of(command) == FILES)
        fprintf(out, "%s -F\n", of);
}

static void fish(FILE *out)
{
    fputs("# For fish.\nset -g slipring_settings '", out);
    put_settings(out);
    fputs("'\ncomplete -c slipring -f\n"
          "complete -c slipring -n __fish_use_subcommand -l help -d 'what there is'\n"
          "complete -c slipring -n __fish_use_subcommand -l version -d 'which version, and of what'\n",
          out);
    for (const struct option_row *row = command_rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_COMMAND)
            fish_command(out, row);
}

bool print_completion(FILE *out, const char *shell)
{
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(out);
            return true;
        }
    return false;
}
