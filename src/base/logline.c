// SPDX-License-Identifier: Apache-2.0
#include "logline.h"

#include "veneer/base/utf8.h"

#include <stdio.h>
#include <string.h>

#define MOUNT_BYTES 3000u /* of the line; the message has the rest */

static const char *const levels[] = { "emergency", "alert",  "critical", "error",
				      "warning",   "notice", "info",	 "debug" };

/* Text that grows to the right, as long as there is room. */
struct page {
	char *to;
	size_t len, max;
};

static int put(struct page *p, const char *s, size_t n)
{
	if (n > p->max - p->len)
		return -1;
	memcpy(p->to + p->len, s, n);
	p->len += n;
	return 0;
}

/* Put one character of s, and return the number of its bytes; 0: there is no room. */
static size_t put_character(struct page *p, const char *s)
{
	const unsigned char *p8 = (const unsigned char *)s;
	const size_t n = utf8_len(p8);
	char text[16];

	if (n && utf8_is_control(p8, n))
		snprintf(text, sizeof(text), "\\u%04x",
			 n == 1	  ? p8[0]
			 : n == 2 ? (p8[0] & 0x1fu) << 6 | (p8[1] & 0x3fu)
				  : (p8[0] & 0xfu) << 12 | (p8[1] & 0x3fu) << 6 | (p8[2] & 0x3fu));
	else if (n == 1 && (*s == '"' || *s == '\\'))
		snprintf(text, sizeof(text), "\\%c", *s);
	else if (n)
		snprintf(text, sizeof(text), "%.*s", (int)n, s);
	else
		snprintf(text, sizeof(text), "\\\\x%02x", *p8);
	return put(p, text, strlen(text)) < 0 ? 0 : n ?: 1;
}

/* "key":"value", cut so that so many bytes are taken at most. */
static void put_string(struct page *p, const char *key, const char *value, size_t max)
{
	const size_t end = p->max;
	size_t n = 1;

	put(p, "\"", 1);
	put(p, key, strlen(key));
	put(p, "\":\"", 3);
	p->max = p->len + max < end ? p->len + max : end;
	while (*value && (n = put_character(p, value)))
		value += n;
	p->max = end;
	put(p, "\"", 1);
}

static void put_head(struct page *p, const struct logline *l)
{
	const char *level = l->priority >= 0 && l->priority <= 7 ? levels[l->priority] : "info";
	char text[256];
	struct tm tm;
	size_t n;

	gmtime_r(&l->at.tv_sec, &tm);
	n = strftime(text, sizeof(text), "{\"time\":\"%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(text + n, sizeof(text) - n,
			      ".%06ldZ\",\"level\":\"%s\",\"priority\":%d,\"pid\":%ld,",
			      l->at.tv_nsec / 1000, level, l->priority, (long)l->pid);
	put(p, text, n);
}

size_t logline_json(const struct logline *l, char to[LOGLINE_MAX])
{
	struct page p = { .to = to, .max = LOGLINE_MAX - 3 };

	put_head(&p, l);
	put_string(&p, "name", l->name, 256);
	put(&p, ",", 1);
	if (l->mount) {
		put_string(&p, "mount", l->mount, MOUNT_BYTES);
		put(&p, ",", 1);
	}
	/* The part that is left out here includes the quote behind it. */
	put_string(&p, "message", l->message, LOGLINE_MAX - 32 - p.len);
	p.max = LOGLINE_MAX;
	put(&p, "}\n", 2);
	return p.len;
}

/* A line end would begin another field. */
static void put_field(struct page *p, const char *key, const char *value, size_t max)
{
	const size_t len = strlen(value) < max ? strlen(value) : max,
		     start = p->len + strlen(key) + 1;

	if (start + len + 1 > p->max)
		return;
	put(p, key, strlen(key));
	put(p, "=", 1);
	put(p, value, len);
	for (size_t i = start; i < p->len; i++)
		if (p->to[i] == '\n')
			p->to[i] = '?';
	put(p, "\n", 1);
}

size_t logline_journal(const struct logline *l, char to[LOGLINE_MAX])
{
	struct page p = { .to = to, .max = LOGLINE_MAX };
	const char priority[2] = { (char)('0' + (l->priority & 7)), '\0' };

	put_field(&p, "PRIORITY", priority, 1);
	put_field(&p, "SYSLOG_IDENTIFIER", l->name, 256);
	put_field(&p, "VENEER_VERSION", VENEER_VERSION, 64);
	if (l->mount)
		put_field(&p, "VENEER_MOUNT", l->mount, MOUNT_BYTES);
	put_field(&p, "MESSAGE", l->message, LOGLINE_MAX - p.len - 16);
	return p.len;
}
