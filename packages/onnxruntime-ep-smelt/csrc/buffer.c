#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "provider.h"

static int grow(buffer *to, size_t bytes) {
  if (to->failed) return 0;
  if (to->room - to->used > bytes) return 1;
  const size_t room = (to->used + bytes + 64) * 2;
  char *data = room > to->used ? realloc(to->data, room) : NULL;
  to->failed = !data;
  if (data) to->data = data, to->room = room;
  return data != NULL;
}

void buffer_add(buffer *to, const void *data, size_t bytes) {
  if (!bytes || !grow(to, bytes)) return;
  memcpy(to->data + to->used, data, bytes);
  to->used += bytes;
}

void buffer_text(buffer *to, const char *text) { buffer_add(to, text, strlen(text)); }

void buffer_format(buffer *to, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int bytes = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (bytes < 0 || !grow(to, (size_t)bytes + 1)) return;
  va_start(arguments, format);
  vsnprintf(to->data + to->used, (size_t)bytes + 1, format, arguments);
  va_end(arguments);
  to->used += (size_t)bytes;
}

const char *buffer_string(buffer *from) {
  if (!grow(from, 1)) return NULL;
  from->data[from->used] = 0;
  return from->data;
}

void buffer_free(buffer *gone) {
  free(gone->data);
  memset(gone, 0, sizeof *gone);
}

void reason_set(reason *why, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why->text, sizeof why->text, format, arguments);
  va_end(arguments);
}

int reason_ok(const ort_host *host, reason *why, OrtStatus *status) {
  if (!status) return 1;
  reason_set(why, "%s", ORT_CALL(host->api, 2, message)(status));
  ORT_CALL(host->api, 93, release_status)(status);
  return 0;
}

OrtStatus *reason_status(const ort_host *host, const reason *why) {
  char text[sizeof why->text + 16];
  snprintf(text, sizeof text, "smelt: %s", why->text);
  return ORT_CALL(host->api, 0, create_status)(ORT_CODE_FAIL, text);
}
