/* SPDX-License-Identifier: Apache-2.0 */
/* Writes more than a hundred broken tune files to a folder, named 001 and on; prints how many. Each has an error that a
 * reader must find. Everything is made from a seed, so a number names the same file everywhere. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char good[] = "# comment\nallgather bytes=1M..64M ranks=8 : algorithm=ring protocol=simple channels=8\n";

/* Lines with an error each. */
static const char *const lines[] = {
    "allgather",
    "allgather bytes=1M",
    "allgather bytes=1M :",
    "allgather : :",
    "allgather : algorithm=ring : protocol=ll",
    ": algorithm=ring",
    "=",
    "= : =",
    "gather : algorithm=ring",
    "sendrecv : algorithm=ring",
    "all gather : algorithm=ring",
    "allgather ring",
    "allgather : ring",
    "allgather : algorithm ring",
    "allgather : algorithm=",
    "allgather : algorithm=rings",
    "allgather : algorithm=1",
    "allgather : protocol=",
    "allgather : protocol=LL64",
    "allgather : protocol=simple,ll",
    "allgather : channels=",
    "allgather : channels=0",
    "allgather : channels=65",
    "allgather : channels=-1",
    "allgather : channels=+1",
    "allgather : channels=1.5",
    "allgather : channels=0x10",
    "allgather : channels=99999999999999999999999999",
    "allgather : channels=four",
    "allgather : channels=4K",
    "allgather : channels=8 channels=8",
    "allgather : algorithm=ring algorithm=tree",
    "allgather ranks=2 ranks=2 : channels=4",
    "allgather : bytes=1M",
    "allgather : ranks=8 channels=1",
    "allgather algorithm=ring : channels=1",
    "allgather bytes= : channels=1",
    "allgather bytes=.. : channels=1",
    "allgather bytes=... : channels=1",
    "allgather bytes=1...2 : channels=1",
    "allgather bytes=1..2..3 : channels=1",
    "allgather bytes=2..1 : channels=1",
    "allgather bytes=1M..1K : channels=1",
    "allgather bytes=1X : channels=1",
    "allgather bytes=1KB : channels=1",
    "allgather bytes=1KiB : channels=1",
    "allgather bytes=K : channels=1",
    "allgather bytes=-1 : channels=1",
    "allgather bytes=1e6 : channels=1",
    "allgather bytes=18446744073709551616 : channels=1",
    "allgather bytes=18446744073709551615K : channels=1",
    "allgather bytes=999999999T : channels=1",
    "allgather bytes=1M-2M : channels=1",
    "allgather bytes=<1M : channels=1",
    "allgather ranks=8K : channels=1",
    "allgather ranks=eight : channels=1",
    "allgather ranks=* : channels=1",
    "allgather nodes=1.. 2 : channels=1",
    "allgather nodes=one : channels=1",
    "allgather registered= : channels=1",
    "allgather registered=1 : channels=1",
    "allgather registered=true : channels=1",
    "allgather reg=yes : channels=1",
    "allgather -> algorithm=ring",
    "allgather,1M,64M,ring,simple,8",
    "allreduce : algorithm=collnetchain channels=8",
    "allreduce : algorithm=collnetdirect protocol=simple channels=64",
    "{\"collective\": \"allgather\"}",
    "<xml>",
    "\xff\xfe",
    "\xc3\x28 : channels=1",
    "allgather : channels=1\x01",
    "\x7f\x45\x4c\x46",
};
#define LINES ((int)(sizeof lines / sizeof *lines))

static int files;

static FILE *next(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%03d", folder, ++files);
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        exit(1);
    }
    return f;
}

static void text(const char *folder, const char *before, const char *line, const char *after)
{
    FILE *f = next(folder);
    fputs(before, f);
    fputs(line, f);
    fputs(after, f);
    fclose(f);
}

static uint64_t random64(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void binary(const char *folder, uint64_t seed, size_t bytes)
{
    FILE *f = next(folder);
    fputc(0, f); /* a byte that no text has */
    for (size_t i = 1; i < bytes; i++)
        fputc((int)(random64(&seed) & 0xff), f);
    fclose(f);
}

static void repeat(const char *folder, const char *what, size_t times, const char *end)
{
    FILE *f = next(folder);
    while (times-- > 0)
        fputs(what, f);
    fputs(end, f);
    fclose(f);
}

/* Cut within its last line, before what makes it a rule. */
static void truncated(const char *folder)
{
    size_t colon = (size_t)(strchr(good, ':') - good);
    for (size_t n = colon; n + 6 > colon; n--) {
        FILE *f = next(folder);
        fwrite(good, 1, n, f);
        fclose(f);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    for (int i = 0; i < LINES; i++)
        text(argv[1], "", lines[i], "");
    for (int i = 0; i < LINES; i += 3)
        text(argv[1], good, lines[i], "\nallreduce : channels=2\n");
    truncated(argv[1]);
    for (uint64_t i = 0; i < 10; i++)
        binary(argv[1], i, (size_t)1 << (2 * i));
    text(argv[1], "", "", ""); /* empty */
    repeat(argv[1], "x", 1 << 20, "");
    repeat(argv[1], "allgather ", 1 << 10, " : channels=1\n");
    repeat(argv[1], "allgather : channels=1\n", 4097, "");
    repeat(argv[1], "# a long comment, and another one\n", 40000, "");
    repeat(argv[1], "\n\n\n\n", 1000, "nonsense\n");
    printf("%d\n", files);
    return 0;
}
