/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML form: one page without anything from elsewhere, that needs no script. */
#include <stdlib.h>
#include <string.h>
#include "tools/common/utf8.h"
#include "tools/report/out.h"

/* Colours: Okabe and Ito's set, which stays apart for all common forms of colour blindness;
 * hatching and labels say the same without colour. Every text colour has at least 4.5:1 against
 * what is behind it. */
static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1a1d21;--dim:#545b64;--line:#d5d9de;--head:#f3f5f7;"
    "--card:#fff;--accent:#005a94;--gemm:#0072b2;--gemm-t:#fff;--pull:#e69f00;--pull-t:#111;--copy:#009e73;"
    "--copy-t:#000;--push:#cc79a7;--push-t:#000;--nccl:#56b4e9;--nccl-t:#000;--wait:#c23b00;"
    "--wait-bg:#fdeee6;--gather:#eceff2;--gather-t:#1a1d21;--more:rgba(26,29,33,.24)}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e9ec;--dim:#a7b0ba;--line:#3a4148;"
    "--head:#20252a;--card:#181c20;--accent:#7cc4f5;--gemm:#3b9ad9;--gemm-t:#000;--pull:#f0b429;"
    "--pull-t:#000;--copy:#2fc193;--copy-t:#000;--push:#dd9bc0;--push-t:#000;--nccl:#7fc9f2;--nccl-t:#000;"
    "--wait:#ff8552;--wait-bg:#33221b;--gather:#2a3036;--gather-t:#e6e9ec;--more:rgba(230,233,236,.3)}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--bg);color:var(--fg);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
    "main{max-width:1240px;margin:0 auto;padding:20px 20px 60px}\n"
    "h1{font-size:1.6rem;margin:0 0 .6rem}h2{font-size:1.15rem;margin:2.2rem 0 .5rem;padding-bottom:.25rem;"
    "border-bottom:1px solid var(--line)}\n"
    "p{margin:.4rem 0 .8rem;max-width:80ch;color:var(--dim);overflow-wrap:anywhere}li{margin:.3rem 0;"
    "max-width:90ch;overflow-wrap:anywhere}ul{padding-left:1.3rem}\n"
    ".box{overflow-x:auto;border:1px solid var(--line);border-radius:8px;margin:.6rem 0 1rem;"
    "background:linear-gradient(90deg,var(--card) 30%,transparent) 0 0/40px 100% no-repeat "
    "local,linear-gradient(270deg,var(--card) 30%,transparent) 100% 0/40px 100% no-repeat "
    "local,linear-gradient(90deg,var(--more),transparent) 0 0/14px 100% "
    "no-repeat,linear-gradient(270deg,var(--more),transparent) 100% 0/14px 100% no-repeat,var(--card)}\n"
    ".box:focus-visible{outline:3px solid var(--accent);outline-offset:1px}\n"
    "code{font:.92em ui-monospace,'DejaVu Sans Mono',monospace;background:var(--head);padding:1px 4px;"
    "border-radius:3px}\n"
    "table{border-collapse:collapse;width:100%;font-size:.87rem;font-variant-numeric:tabular-nums}\n"
    "th,td{text-align:left;padding:6px 12px;vertical-align:top;border-bottom:1px solid var(--line)}\n"
    "tr:last-child>td,tr:last-child>th[scope=row]{border-bottom:0}thead th{background:var(--head);"
    "font-weight:600;vertical-align:bottom}\n"
    "tbody th{font-weight:600;white-space:nowrap}td.n{white-space:nowrap}.n{text-align:right}"
    ".nw{white-space:nowrap}td.w{min-width:16ch;overflow-wrap:break-word}.glance td{overflow-wrap:anywhere}\n"
    ".tl{display:flex;width:max-content;min-width:100%}.tl svg{display:block;flex:none}"
    ".tl .names{position:sticky;left:0;background:var(--card);border-right:1px solid var(--line);z-index:1}\n"
    "svg text{font:11px system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:var(--fg)}"
    "svg .dim{fill:var(--dim)}svg .b{font-weight:600}\n"
    ".gemm{fill:var(--gemm)}svg text.gemm-t{fill:var(--gemm-t)}.pull{fill:var(--pull)}"
    "svg text.pull-t{fill:var(--pull-t)}\n"
    ".copy{fill:var(--copy)}svg text.copy-t{fill:var(--copy-t)}.push{fill:var(--push)}"
    "svg text.push-t{fill:var(--push-t)}\n"
    ".nccl{fill:var(--nccl)}svg text.nccl-t{fill:var(--nccl-t)}.gather{fill:var(--gather);stroke:var(--dim);"
    "stroke-width:1}svg text.gather-t{fill:var(--gather-t)}\n"
    ".wait{fill:url(#hatch);stroke:var(--wait);stroke-width:1}svg text.wait-t{fill:var(--fg);"
    "paint-order:stroke;stroke:var(--card);stroke-width:5px;stroke-linejoin:round}.hb{fill:var(--wait-bg)}"
    ".hl{stroke:var(--wait);stroke-width:1.6}\n"
    ".grid{stroke:var(--line);stroke-width:1}.band{fill:var(--head);opacity:.55}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:6px 18px;margin:.3rem 0 .8rem;padding:0;list-style:none;"
    "font-size:.87rem}.legend li{display:flex;gap:7px;align-items:center;margin:0}\n"
    ".legend svg{flex:none}\n"
    ".bars{display:grid;grid-template-columns:fit-content(38ch) minmax(90px,1fr) auto;gap:8px 12px;"
    "align-items:center;margin:.6rem 0 1rem;font-size:.87rem}\n"
    ".bars .name{overflow-wrap:anywhere}.bar{display:flex;height:18px;border-radius:3px;"
    "background:var(--head)}.bar>span{display:block;height:100%;min-width:0}.bar .hid{background:var(--gemm)}"
    ".bar .exp{border:1px solid var(--wait);"
    "background:repeating-linear-gradient(-45deg,var(--wait) 0 2px,var(--wait-bg) 2px 6px)}"
    ".bar .late{border:1px dashed var(--dim)}svg .late{fill:none;stroke:var(--dim);stroke-dasharray:3 2}\n"
    ".bar,.bar>span,svg *{print-color-adjust:exact;-webkit-print-color-adjust:exact}"
    ".bars .num{font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    "@media(max-width:600px){main{padding:14px 12px 40px}h1{font-size:1.35rem}"
    ".bars{grid-template-columns:1fr;gap:2px}.bars .num{margin-bottom:8px;white-space:normal}"
    "th,td{padding:5px 8px}tbody th,.nw{white-space:normal}td.w{min-width:12ch}.glance th,.glance "
    "td{display:block;border:0;padding:3px 10px}"
    ".glance tr{display:block;border-bottom:1px solid var(--line);padding:3px 0}.glance tr:last-child{border:0}}\n"
    "@media print{.box{overflow:visible;background:var(--card)}}\n";

static const char *html_escape(char c)
{
    switch (c) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void html_text(FILE *to, const char *text)
{
    for (unsigned n; *text; text += n ? n : 1) {
        n = utf8_printable(text);
        const char *escape = html_escape(*text);
        if (n == 0)
            fputc('?', to);
        else if (escape)
            fputs(escape, to);
        else
            fwrite(text, 1, n, to);
    }
}

/* Up to the next backquote, or all that is left; the place behind it. */
static const char *put_until_quote(FILE *to, const char *text, const char *tag)
{
    size_t len = strcspn(text, "`");
    char *part = tool_text("%.*s", (int)len, text);
    if (*tag)
        fprintf(to, "<%s>", tag);
    html_text(to, part);
    if (*tag)
        fprintf(to, "</%s>", tag);
    free(part);
    return text + len;
}

void html_prose(FILE *to, const char *text)
{
    for (;;) {
        text = put_until_quote(to, text, "");
        if (!*text)
            return;
        if (!strchr(text + 1, '`')) { /* one by itself */
            html_text(to, text);
            return;
        }
        text = put_until_quote(to, text + 1, "code") + 1;
    }
}

void html_begin(struct out *o, const char *title)
{
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline';img-src "
          "data:\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          o->to);
    html_text(o->to, title);
    fprintf(o->to, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>", style);
    html_text(o->to, title);
    fputs("</h1>\n", o->to);
}

void html_end(struct out *o)
{
    fputs("</main>\n</body>\n</html>\n", o->to);
}

void html_section(struct out *o, const char *id, const char *title)
{
    o->section = id;
    fprintf(o->to, "<h2 id=\"%s\">", id);
    html_text(o->to, title);
    fputs("</h2>\n", o->to);
}

static void put_head(struct out *o, const struct table *t)
{
    fputs("<thead><tr>", o->to);
    for (size_t c = 0; c < t->n; c++) {
        fprintf(o->to, "<th scope=\"col\"%s>", t->columns[c].right ? " class=\"n\"" : "");
        html_text(o->to, t->columns[c].title);
        fputs("</th>", o->to);
    }
    fputs("</tr></thead>\n", o->to);
}

static void put_cell(struct out *o, const struct column *c, const char *text, bool first)
{
    const char *class = c->right ? "n" : c->wraps ? "w" : "nw";
    fprintf(o->to, first ? "<th scope=\"row\" class=\"%s\">" : "<td class=\"%s\">", class);
    html_prose(o->to, text);
    fputs(first ? "</th>" : "</td>", o->to);
}

/* A table without titles is a list of facts. Wide ones scroll in a box of their own, that the
 * keyboard reaches. */
void html_table(struct out *o, const struct table *t)
{
    bool facts = !t->columns[0].title[0];
    fprintf(o->to, "<div class=\"box%s\" tabindex=\"0\" role=\"region\" aria-label%s=\"%s\"><table>\n",
            facts ? " glance" : "", o->section ? "ledby" : "", o->section ? o->section : "At a glance");
    if (!facts)
        put_head(o, t);
    fputs("<tbody>\n", o->to);
    for (size_t i = 0; i < t->cells.n; i++) {
        if (i % t->n == 0)
            fputs("<tr>", o->to);
        put_cell(o, &t->columns[i % t->n], t->cells.at[i], i % t->n == 0);
        if (i % t->n == t->n - 1)
            fputs("</tr>\n", o->to);
    }
    fputs("</tbody></table></div>\n", o->to);
}
