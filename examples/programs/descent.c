/* Gradient descent on a quadratic: the whole contract between Driftline and a program, in C.
   cc -O2 -o descent descent.c; driftline run descent_c.yaml */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile sig_atomic_t stopping;

static void stop(int number) { stopping = number; }

/* The content of a file. */
static char *content(const char *path) {
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    if (!file) { perror(path); exit(1); }
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

/* The value of a key in a JSON document on one line, without quotes. */
static char *value(const char *document, const char *key) {
    char form[64];
    snprintf(form, sizeof form, "\"%s\": ", key);
    const char *from = strstr(document, form);
    if (!from) { fprintf(stderr, "%s is missing\n", key); exit(2); }
    from += strlen(form);
    from += *from == '"';
    return strndup(from, strcspn(from, "\",}"));
}

/* Writes the state after a round as a folder that appears whole. */
static void save(const char *folder, long round, double x) {
    char draft[4096], path[4096], final[4096];
    snprintf(draft, sizeof draft, "%s/draft", folder);
    snprintf(path, sizeof path, "%s/draft/x", folder);
    snprintf(final, sizeof final, "%s/%ld", folder, round);
    mkdir(draft, 0700);
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "%.17g", x) < 0 || fclose(file) || rename(draft, final)) { perror(final); exit(1); }
}

int main(void) {
    signal(SIGTERM, stop);
    char *trial = strdup(content(getenv("DRIFTLINE_TRIAL")));
    double rate = atof(value(trial, "rate")), x = 4;
    long round = atol(value(trial, "first")), rounds = atol(value(trial, "rounds")), saved = round, wanted = 0;
    char *folder = value(trial, "checkpoints"), *resume = value(trial, "resume"), *control = value(trial, "control");
    FILE *reports = fopen(value(trial, "reports"), "a");
    if (strcmp(resume, "null")) x = atof(content(strcat(strcpy(malloc(strlen(resume) + 3), resume), "/x")));
    while (!stopping) {
        char *told = content(control);
        int more = round < atol(value(told, "until"));
        if (!more && strcmp(value(told, "wait"), "true")) break;
        if (!more) { usleep(20000); continue; } /* at a rung, without a decision */
        x -= rate * 2 * x;
        fprintf(reports, "{\"round\": %ld, \"loss\": %.17g}\n", ++round, x * x);
        fflush(reports);
        long asked = atol(value(told, "checkpoint"));
        if (asked > wanted) { save(folder, saved = round, x); wanted = asked; }
    }
    if (round < rounds && round > saved && strcmp(folder, "null")) save(folder, round, x);
    return 0;
}
