/* Mediated connect(2), under the untrusted profile: cloche makes the call itself, on the caller's
 * socket, to an address that it read once. Letting the call continue after a look at its arguments
 * can be raced by another thread of the caller; this can't.
 *
 * Only connect needs it: unix stream and seqpacket sockets take no address in sendto or sendmsg
 * (unix(7)), and the profile's filter makes no unix datagram sockets. */
#pragma once

#include <linux/seccomp.h>
#include <stdbool.h>
#include <sys/types.h>

#include "box/denied.h"
#include "box/spec.h"

/* Fills `resp` with the result. A unix socket by path is connected only when it does not lie in a
 * directory of the host; every other address goes on as it is, in the network that the socket
 * belongs to. Whatever can't be read or judged is EPERM. With `refuse` it is judged and not made.
 * True when it is a denial to record, with path and mount in *ret_refused if it is the host's
 * socket. `init` is the host's pid of the box's init. */
bool mediate_connect(int listener, pid_t init, const struct box_spec *spec,
		     const struct seccomp_notif *req, bool refuse, struct seccomp_notif_resp *resp,
		     struct box_denied *ret_refused);
