/* SHA-256 (FIPS 180-4), for names of what is made here: short texts, by a program that links no
 * library. */
#pragma once

#include <stddef.h>

#define SHA256_HEX 64

/* The digest of n bytes as lower-case hexadecimal digits, terminated. */
void sha256_hex(const void *data, size_t n, char ret[SHA256_HEX + 1]);
