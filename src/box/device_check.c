/* Which devices a box may have. The name decides, and the number is looked at as well, so that a
 * node of memory under a harmless name is still refused. Allowed are devices whose driver keeps
 * users apart, or that are one machine the caller chose to hand over; refused are those that stand
 * for the host itself.
 *
 * What may go wrong: a device is as safe as its driver. A GPU or a KVM handle is a large surface;
 * the notes say so. */
#include "box/device_check.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/fd.h"
#include "base/path.h"

#define OWN "every box has its own"
#define MEMORY "it is the host's memory or kernel log"
#define TERMINAL "it is a terminal of the host"
#define DISK "it gives raw access to disks"
#define INPUT "it reads or forges the host's keyboard and mouse"
#define FIRMWARE "it commands the machine's firmware or power"
#define KERNEL "it configures the host's kernel"

#define ALLOW(p)                                                                                   \
	{                                                                                          \
		p, true, NULL                                                                      \
	}
#define ALLOW_NOTE(p, w)                                                                           \
	{                                                                                          \
		p, true, w                                                                         \
	}
#define REFUSE(p, w)                                                                               \
	{                                                                                          \
		p, false, w                                                                        \
	}

const struct device_rule device_rules[] = {
	REFUSE("null", OWN),
	REFUSE("zero", OWN),
	REFUSE("full", OWN),
	REFUSE("random", OWN),
	REFUSE("urandom", OWN),
	REFUSE("tty", OWN),
	REFUSE("ptmx", OWN),
	REFUSE("pts/*", TERMINAL),
	REFUSE("mem", MEMORY),
	REFUSE("kmem", MEMORY),
	REFUSE("port", MEMORY),
	REFUSE("kmsg", MEMORY),
	REFUSE("oldmem", MEMORY),
	REFUSE("mcelog", MEMORY),
	REFUSE("crash", MEMORY),
	REFUSE("console", TERMINAL),
	REFUSE("tty#", TERMINAL),
	REFUSE("vcs*", TERMINAL),
	REFUSE("hvc#", TERMINAL),
	REFUSE("ttyprintk", TERMINAL),
	REFUSE("fb#", TERMINAL),
	REFUSE("loop-control", DISK),
	REFUSE("mapper/control", DISK),
	REFUSE("btrfs-control", DISK),
	REFUSE("sg#", DISK),
	REFUSE("bsg/*", DISK),
	REFUSE("nvme*", DISK),
	REFUSE("ng#*", DISK),
	REFUSE("raw/*", DISK),
	REFUSE("megaraid*", DISK),
	REFUSE("st#", DISK),
	REFUSE("nst#", DISK),
	REFUSE("mtd#*", DISK),
	REFUSE("ubi*", DISK),
	REFUSE("zfs", DISK),
	REFUSE("autofs", KERNEL),
	REFUSE("cuse", KERNEL),
	REFUSE("fuse", "a box can't mount, so it is of no use there"),
	REFUSE("snapshot", KERNEL),
	REFUSE("rfkill", KERNEL),
	REFUSE("ppp", KERNEL),
	REFUSE("vga_arbiter", KERNEL),
	REFUSE("userfaultfd", KERNEL),
	REFUSE("udmabuf", KERNEL),
	REFUSE("ashmem", KERNEL),
	REFUSE("binder*", KERNEL),
	REFUSE("cpu_dma_latency", KERNEL),
	REFUSE("hwpoison*", KERNEL),
	REFUSE("ecryptfs", KERNEL),
	REFUSE("vhost-*", "it lets the kernel write on the box's behalf"),
	REFUSE("vsock", "it is a way to other machines"),
	REFUSE("vfio/*", "it gives DMA to raw hardware"),
	REFUSE("vmci", KERNEL),
	REFUSE("vboxdrv*", KERNEL),
	REFUSE("vboxguest", KERNEL),
	REFUSE("uinput", INPUT),
	REFUSE("uhid", INPUT),
	REFUSE("hidraw#", INPUT),
	REFUSE("input/*", INPUT),
	REFUSE("usbmon#", INPUT),
	REFUSE("mei#", FIRMWARE),
	REFUSE("ipmi#", FIRMWARE),
	REFUSE("ipmi/*", FIRMWARE),
	REFUSE("hpet", FIRMWARE),
	REFUSE("rtc", FIRMWARE),
	REFUSE("rtc#", FIRMWARE),
	REFUSE("watchdog", FIRMWARE),
	REFUSE("watchdog#", FIRMWARE),
	REFUSE("nvram", FIRMWARE),
	REFUSE("cpu/*/*", FIRMWARE),
	REFUSE("tpm#", FIRMWARE),
	REFUSE("tpmrm#", FIRMWARE),
	REFUSE("isst_interface", FIRMWARE),
	REFUSE("sev*", FIRMWARE),
	REFUSE("tdx*", FIRMWARE),
	REFUSE("ptp#", FIRMWARE),
	REFUSE("pps#", FIRMWARE),
	REFUSE("acpi*", FIRMWARE),
	REFUSE("bus/usb/*/*",
	       "whoever holds it may write a device's firmware; hand over its serial or video node instead"),

	ALLOW_NOTE(
		"kvm",
		"kvm: a guest of the box talks to the host's kernel; its memory counts as the box's"),
	ALLOW_NOTE("net/tun",
		   "net/tun: a tunnel needs --cap-add NET_ADMIN, and is in the box's own network"),
	ALLOW("dri/renderD#"),
	ALLOW_NOTE("dri/card#",
		   "dri/card: it can also set screen modes; renderD is enough to compute"),
	ALLOW("kfd"),
	ALLOW("accel/accel#"),
	ALLOW("apex_#"),
	ALLOW("dxg"),
	ALLOW("nvidia#"),
	ALLOW("nvidiactl"),
	ALLOW("nvidia-uvm"),
	ALLOW("nvidia-uvm-tools"),
	ALLOW("nvidia-modeset"),
	ALLOW("nvidia-caps/nvidia-cap#"),
	ALLOW("dma_heap/system"),
	ALLOW("infiniband/uverbs#"),
	ALLOW("infiniband/rdma_cm"),
	ALLOW("sgx_enclave"),
	ALLOW("hwrng"),
	ALLOW("ttyS#"),
	ALLOW("ttyUSB#"),
	ALLOW("ttyACM#"),
	ALLOW("ttyAMA#"),
	ALLOW("ttyGS#"),
	ALLOW("rfcomm#"),
	ALLOW("gpiochip#"),
	ALLOW("i2c-#"),
	ALLOW("spidev#.#"),
	ALLOW("lp#"),
	ALLOW("usb/lp#"),
	ALLOW("iio:device#"),
	ALLOW("video#"),
	ALLOW("media#"),
	ALLOW("v4l-subdev#"),
	ALLOW("snd/*"),
	ALLOW("dvb/*/*"),
	ALLOW("cec#"),
};
const size_t device_rules_n = sizeof(device_rules) / sizeof(device_rules[0]);

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool glob(const char *p, const char *s)
{
	for (; *p; p++) {
		if (*p == '*') {
			for (;; s++) {
				if (glob(p + 1, s))
					return true;
				if (!*s || *s == '/')
					return false;
			}
		}
		if (*p == '#') {
			if (!is_digit(*s))
				return false;
			while (is_digit(*s))
				s++;
			continue;
		}
		if (*p != *s++)
			return false;
	}
	return !*s;
}

const struct device_rule *device_rule_of(const char *name)
{
	for (size_t i = 0; i < device_rules_n; i++)
		if (glob(device_rules[i].pattern, name))
			return &device_rules[i];
	return NULL;
}

/* By number (Documentation/admin-guide/devices.txt), whatever its name: what no name may bring in.
 */
static const char *refused_number(dev_t rdev)
{
	switch (major(rdev)) {
	case 1:
		return minor(rdev) == 8 || minor(rdev) == 9 ? OWN : MEMORY;
	case 4:
		return minor(rdev) < 64 ? TERMINAL : NULL;
	case 5:
	case 7:
		return TERMINAL;
	case 13:
		return INPUT;
	case 9:
	case 21:
		return DISK;
	default:
		return NULL;
	}
}

static int refuse(struct mount_check *c, const char *path, const char *why, struct err *e)
{
	struct mount_shown s;

	mount_deny_device(c, path, why);
	return err_set(e, ERR_REFUSED, "--device %s: refused: %s; no option allows it",
		       mount_show(&s, path), why);
}

static int judge(struct mount_check *c, const char *path, const struct stat *st, struct err *e)
{
	const struct device_rule *rule;
	struct mount_shown s;
	const char *why;

	if (!path_within(path, "/dev") || !path[4])
		return err_set(e, ERR_USAGE, "--device %s: a device is below /dev",
			       mount_show(&s, path));
	if (S_ISBLK(st->st_mode))
		return refuse(c, path, "it is a block device", e);
	if (!S_ISCHR(st->st_mode))
		return err_set(
			e, ERR_USAGE,
			"--device %s: it is no device; files and directories are shared with -v",
			mount_show(&s, path));
	rule = device_rule_of(path + strlen("/dev/"));
	if (!rule)
		return refuse(c, path, "it is not among the devices known to be safe to hand over",
			      e);
	why = rule->allow ? refused_number(st->st_rdev) : rule->why;
	if (why)
		return refuse(c, path, why, e);
	if (rule->why)
		mount_note(c, "%s", rule->why);
	return 0;
}

int device_check(struct mount_check *c, const char *path, struct box_device *ret, struct err *e)
{
	char real[PATH_MAX];
	_cleanup_fd_ int fd = -1;
	struct mount_shown s;
	const char *kept;
	struct stat st;

	if (*path != '/')
		return err_set(e, ERR_USAGE, "--device \"%s\": write /dev/NODE",
			       mount_show(&s, path));
	if (path_canonical(path, real) == 0)
		fd = path_open_nolinks(real, 0);
	if (fd < 0 || fstat(fd, &st) < 0) {
		if (errno == ENOENT)
			return err_set(e, ERR_USAGE, "--device %s: there is no such device here",
				       mount_show(&s, path));
		return err_sys(e, "--device %s", mount_show(&s, path));
	}
	if (judge(c, real, &st, e) < 0)
		return -1;
	kept = mount_rules_keep(&c->rules, real, e);
	if (!kept)
		return -1;
	*ret = (struct box_device){ .path = kept, .rdev = st.st_rdev };
	return 0;
}
