/* A release's programs are static, and run where none of their libraries is, or another version of
 * it. musl keeps to itself; glibc, linked statically, would still load the host's libraries for
 * names of users and hosts, and these need the very glibc they were made for. */
#pragma once

/* From now on users and services are looked up in /etc alone. Does nothing in a program that is not
 * static, where the host's ways are used. To be called first in main(). */
void alone(void);
