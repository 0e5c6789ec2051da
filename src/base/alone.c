#include "base/alone.h"

#if defined(CLOCHE_STATIC) && defined(__GLIBC__)
#include <nss.h>

void alone(void)
{
	static const char *const tables[] = { "passwd", "group", "services", "protocols", "hosts" };

	for (unsigned i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		__nss_configure_lookup(tables[i], "files");
}
#else
void alone(void)
{
}
#endif
