/* Ports: an address on this machine's loopback that leads into a box, while its call runs. Each
 * connection that comes is answered by one that the box's init makes from inside its own network
 * namespace, and bytes are carried between the two, with bounded buffers and back-pressure.
 *
 * Whoever is on this machine can connect to that address: so can a client, and so can others. */
#pragma once

#include "session/call.h"

/* The operation `port`. */
void port_open(struct call *c, const struct request *r);
/* SPAWN_CONNECTED: fd (taken over; -1: the box has nobody at that port). */
void port_connected(struct call *c, uint64_t tag, int fd);
/* All of the call's. */
void port_end(struct call *c);
