/* The table of host paths that a box never sees. Rows of one class stand together; the first row
 * that matches gives the message, so the more telling row comes first. How rows are matched is in
 * mount_rules.c; that every row works, and has a neighbour that passes, is tested by walking the
 * table. */
#include <assert.h>

#include "box/mount_rules.h"

#define NAMES(c, p)                                                                                \
	{                                                                                          \
		.pattern = p, .kind = RULE_NAMES, .class = c                                       \
	}
#define BELOW(c, p)                                                                                \
	{                                                                                          \
		.pattern = p, .kind = RULE_BELOW, .class = c                                       \
	}
#define EXACT(c, p)                                                                                \
	{                                                                                          \
		.pattern = p, .kind = RULE_EXACT, .class = c                                       \
	}
#define HOME(c, p)                                                                                 \
	{                                                                                          \
		.pattern = p, .kind = RULE_IN_HOME, .class = c                                     \
	}
#define ENV(c, p)                                                                                  \
	{                                                                                          \
		.pattern = p, .kind = RULE_ENV, .class = c                                         \
	}

const struct mount_rule mount_rules[] = {
	/* A socket of these is the whole machine. */
	NAMES(CLASS_SOCKET, "docker.sock"),
	NAMES(CLASS_SOCKET, "podman.sock"),
	NAMES(CLASS_SOCKET, "containerd.sock"),
	NAMES(CLASS_SOCKET, "crio.sock"),
	NAMES(CLASS_SOCKET, "libvirt-sock"),
	NAMES(CLASS_SOCKET, ".X11-unix"),
	NAMES(CLASS_SOCKET, ".ICE-unix"),
	BELOW(CLASS_SOCKET, "/run/containerd"),
	BELOW(CLASS_SOCKET, "/run/crio"),
	BELOW(CLASS_SOCKET, "/run/podman"),
	BELOW(CLASS_SOCKET, "/run/dbus"),
	BELOW(CLASS_SOCKET, "/var/lib/lxd"),
	BELOW(CLASS_SOCKET, "/var/lib/incus"),
	BELOW(CLASS_SOCKET, "/var/snap/lxd"),
	HOME(CLASS_SOCKET, ".colima"),
	HOME(CLASS_SOCKET, ".lima"),
	HOME(CLASS_SOCKET, ".rd"),
	ENV(CLASS_SOCKET, "SSH_AUTH_SOCK"),

	EXACT(CLASS_SYSTEM, "/"),
	EXACT(CLASS_SYSTEM, "/etc"),
	EXACT(CLASS_SYSTEM, "/root"),
	EXACT(CLASS_SYSTEM, "/home"),
	EXACT(CLASS_SYSTEM, "/var"),
	EXACT(CLASS_SYSTEM, "/var/lib"),
	EXACT(CLASS_SYSTEM, "/tmp"), /* sockets of tmux, X, ssh-agent and everybody's files */
	EXACT(CLASS_SYSTEM, "/var/tmp"),
	BELOW(CLASS_SYSTEM, "/boot"),
	BELOW(CLASS_SYSTEM, "/efi"),
	BELOW(CLASS_SYSTEM, "/proc"),
	BELOW(CLASS_SYSTEM, "/sys"),
	{ "/dev", RULE_BELOW, CLASS_SYSTEM, "/dev/shm" },
	{ "/run", RULE_BELOW, CLASS_SYSTEM, "/run/media" },
	{ "/var/run", RULE_BELOW, CLASS_SYSTEM, "/var/run/media" },
	BELOW(CLASS_SYSTEM, "/etc/shadow"),
	BELOW(CLASS_SYSTEM, "/etc/shadow-"),
	BELOW(CLASS_SYSTEM, "/etc/gshadow"),
	BELOW(CLASS_SYSTEM, "/etc/gshadow-"),
	BELOW(CLASS_SYSTEM, "/etc/sudoers"),
	BELOW(CLASS_SYSTEM, "/etc/sudoers.d"),
	BELOW(CLASS_SYSTEM, "/etc/ssh"),
	BELOW(CLASS_SYSTEM, "/etc/ssl/private"),
	BELOW(CLASS_SYSTEM, "/etc/pki/tls/private"),
	BELOW(CLASS_SYSTEM, "/etc/letsencrypt"),
	BELOW(CLASS_SYSTEM, "/etc/krb5.keytab"),
	BELOW(CLASS_SYSTEM, "/etc/wireguard"),
	BELOW(CLASS_SYSTEM, "/etc/NetworkManager/system-connections"),
	BELOW(CLASS_SYSTEM, "/etc/kubernetes"),
	BELOW(CLASS_SYSTEM, "/etc/rancher"),
	BELOW(CLASS_SYSTEM, "/var/lib/cloud"), /* instance user data */
	BELOW(CLASS_SYSTEM, "/var/lib/docker"),
	BELOW(CLASS_SYSTEM, "/var/lib/containerd"),
	BELOW(CLASS_SYSTEM, "/var/lib/containers"),
	BELOW(CLASS_SYSTEM, "/var/lib/kubelet"),
	BELOW(CLASS_SYSTEM, "/var/lib/rancher"),
	BELOW(CLASS_SYSTEM, "/var/lib/etcd"),
	BELOW(CLASS_SYSTEM, "/var/lib/libvirt"),
	BELOW(CLASS_SYSTEM, "/var/lib/sss"),
	BELOW(CLASS_SYSTEM, "/var/lib/systemd"),
	BELOW(CLASS_SYSTEM, "/var/spool/cron"),

	{ PLACE_HOME, RULE_PLACE, CLASS_HOME, NULL },
	{ PLACE_HOME, RULE_PLACE_ABOVE, CLASS_HOME, NULL },

	/* cloche's own directories: registry, images, logs. A box that writes there is no longer in
	   a box. */
	{ PLACE_STATE, RULE_PLACE_BELOW, CLASS_STATE, NULL },
	{ PLACE_STATE, RULE_PLACE_ABOVE, CLASS_STATE, NULL },

	{ PLACE_RUNTIME, RULE_PLACE_BELOW, CLASS_SYSTEM, NULL },
	{ PLACE_RUNTIME, RULE_PLACE_ABOVE, CLASS_SYSTEM, NULL },

	NAMES(CLASS_KEYS, ".ssh"),
	NAMES(CLASS_KEYS, ".gnupg"),
	NAMES(CLASS_KEYS, ".pki"),
	NAMES(CLASS_KEYS, ".putty"),
	NAMES(CLASS_KEYS, ".step"),
	NAMES(CLASS_KEYS, ".acme.sh"),
	NAMES(CLASS_KEYS, ".config/sops"),
	NAMES(CLASS_KEYS, ".Xauthority"),
	NAMES(CLASS_KEYS, ".ICEauthority"),
	NAMES(CLASS_KEYS, ".config/pulse/cookie"),

	NAMES(CLASS_CLOUD, ".aws"),
	NAMES(CLASS_CLOUD, ".azure"),
	NAMES(CLASS_CLOUD, ".oci"),
	NAMES(CLASS_CLOUD, ".aliyun"),
	NAMES(CLASS_CLOUD, ".bluemix"),
	NAMES(CLASS_CLOUD, ".tccli"),
	NAMES(CLASS_CLOUD, ".fly"),
	NAMES(CLASS_CLOUD, ".terraform.d"),
	NAMES(CLASS_CLOUD, ".terraformrc"),
	NAMES(CLASS_CLOUD, ".pulumi/credentials.json"),
	NAMES(CLASS_CLOUD, ".vault-token"),
	NAMES(CLASS_CLOUD, ".databrickscfg"),
	NAMES(CLASS_CLOUD, ".snowsql"),
	NAMES(CLASS_CLOUD, ".snowflake"),
	NAMES(CLASS_CLOUD, ".boto"),
	NAMES(CLASS_CLOUD, ".s3cfg"),
	NAMES(CLASS_CLOUD, ".rclone.conf"),
	NAMES(CLASS_CLOUD, ".config/rclone"),
	NAMES(CLASS_CLOUD, ".config/gcloud"),
	NAMES(CLASS_CLOUD, ".config/doctl"),
	NAMES(CLASS_CLOUD, ".config/hcloud"),
	NAMES(CLASS_CLOUD, ".config/scw"),
	NAMES(CLASS_CLOUD, ".config/linode-cli"),
	NAMES(CLASS_CLOUD, ".config/netlify"),
	NAMES(CLASS_CLOUD, ".config/.wrangler"),
	NAMES(CLASS_CLOUD, ".config/ngrok"),
	NAMES(CLASS_CLOUD, ".config/configstore"),
	NAMES(CLASS_CLOUD, ".local/share/com.vercel.cli"),
	NAMES(CLASS_CLOUD, ".ngrok2"),
	NAMES(CLASS_CLOUD, ".cloudflared"),
	NAMES(CLASS_CLOUD, ".kaggle"),
	NAMES(CLASS_CLOUD, ".huggingface"),
	NAMES(CLASS_CLOUD, ".cache/huggingface/token"),
	NAMES(CLASS_CLOUD, ".cache/huggingface/stored_tokens"),
	ENV(CLASS_CLOUD, "AWS_SHARED_CREDENTIALS_FILE"),
	ENV(CLASS_CLOUD, "AWS_CONFIG_FILE"),
	ENV(CLASS_CLOUD, "AZURE_CONFIG_DIR"),
	ENV(CLASS_CLOUD, "CLOUDSDK_CONFIG"),
	ENV(CLASS_CLOUD, "GOOGLE_APPLICATION_CREDENTIALS"),

	NAMES(CLASS_CONTAINER, ".docker"),
	NAMES(CLASS_CONTAINER, ".kube"),
	NAMES(CLASS_CONTAINER, ".minikube"),
	NAMES(CLASS_CONTAINER, ".config/helm"),
	NAMES(CLASS_CONTAINER, ".config/argocd"),
	NAMES(CLASS_CONTAINER, ".config/containers/auth.json"),
	ENV(CLASS_CONTAINER, "KUBECONFIG"),
	ENV(CLASS_CONTAINER, "REGISTRY_AUTH_FILE"),

	NAMES(CLASS_PACKAGE, ".npmrc"),
	NAMES(CLASS_PACKAGE, ".yarnrc.yml"),
	NAMES(CLASS_PACKAGE, ".pypirc"),
	NAMES(CLASS_PACKAGE, ".pip/pip.conf"),
	NAMES(CLASS_PACKAGE, ".config/pip/pip.conf"),
	NAMES(CLASS_PACKAGE, ".config/pypoetry/auth.toml"),
	NAMES(CLASS_PACKAGE, ".local/share/uv/credentials"),
	NAMES(CLASS_PACKAGE, ".cargo/credentials"),
	NAMES(CLASS_PACKAGE, ".cargo/credentials.toml"),
	NAMES(CLASS_PACKAGE, ".m2/settings.xml"),
	NAMES(CLASS_PACKAGE, ".m2/settings-security.xml"),
	NAMES(CLASS_PACKAGE, ".gradle/gradle.properties"),
	NAMES(CLASS_PACKAGE, ".ivy2/.credentials"),
	NAMES(CLASS_PACKAGE, ".sbt/.credentials"),
	NAMES(CLASS_PACKAGE, ".gem/credentials"),
	NAMES(CLASS_PACKAGE, ".local/share/gem/credentials"),
	NAMES(CLASS_PACKAGE, ".composer/auth.json"),
	NAMES(CLASS_PACKAGE, ".config/composer/auth.json"),
	NAMES(CLASS_PACKAGE, ".nuget/NuGet/NuGet.Config"),
	NAMES(CLASS_PACKAGE, ".config/NuGet"),
	NAMES(CLASS_PACKAGE, ".hex/hex.config"),
	ENV(CLASS_PACKAGE, "NPM_CONFIG_USERCONFIG"),
	ENV(CLASS_PACKAGE, "PIP_CONFIG_FILE"),

	NAMES(CLASS_SOURCE_CONTROL, ".netrc"),
	NAMES(CLASS_SOURCE_CONTROL, ".git-credentials"),
	NAMES(CLASS_SOURCE_CONTROL, ".config/git/credentials"),
	NAMES(CLASS_SOURCE_CONTROL, ".config/gh"),
	NAMES(CLASS_SOURCE_CONTROL, ".config/hub"),
	NAMES(CLASS_SOURCE_CONTROL, ".config/glab-cli"),
	NAMES(CLASS_SOURCE_CONTROL, ".subversion/auth"),
	ENV(CLASS_SOURCE_CONTROL, "NETRC"),

	NAMES(CLASS_BROWSER, ".mozilla"),
	NAMES(CLASS_BROWSER, ".config/mozilla"),
	NAMES(CLASS_BROWSER, ".librewolf"),
	NAMES(CLASS_BROWSER, ".waterfox"),
	NAMES(CLASS_BROWSER, ".zen"),
	NAMES(CLASS_BROWSER, ".config/google-chrome"),
	NAMES(CLASS_BROWSER, ".config/google-chrome-beta"),
	NAMES(CLASS_BROWSER, ".config/google-chrome-unstable"),
	NAMES(CLASS_BROWSER, ".config/chromium"),
	NAMES(CLASS_BROWSER, ".config/BraveSoftware"),
	NAMES(CLASS_BROWSER, ".config/microsoft-edge"),
	NAMES(CLASS_BROWSER, ".config/vivaldi"),
	NAMES(CLASS_BROWSER, ".config/opera"),
	HOME(CLASS_BROWSER, ".var/app"), /* flatpak: profiles of whole programs */
	HOME(CLASS_BROWSER, "snap/firefox"),
	HOME(CLASS_BROWSER, "snap/chromium"),

	NAMES(CLASS_PASSWORDS, ".password-store"),
	NAMES(CLASS_PASSWORDS, ".local/share/gopass"),
	NAMES(CLASS_PASSWORDS, ".local/share/keyrings"),
	NAMES(CLASS_PASSWORDS, ".local/share/kwalletd"),
	NAMES(CLASS_PASSWORDS, ".config/op"),
	NAMES(CLASS_PASSWORDS, ".config/1Password"),
	NAMES(CLASS_PASSWORDS, ".config/Bitwarden"),
	NAMES(CLASS_PASSWORDS, ".config/Bitwarden CLI"),
	NAMES(CLASS_PASSWORDS, ".config/rbw"),
	NAMES(CLASS_PASSWORDS, ".config/keepassxc"),

	NAMES(CLASS_DATABASE, ".pgpass"),
	NAMES(CLASS_DATABASE, ".my.cnf"),
	NAMES(CLASS_DATABASE, ".mylogin.cnf"),
	NAMES(CLASS_DATABASE, ".local/share/DBeaverData"),
	ENV(CLASS_DATABASE, "PGPASSFILE"),

	NAMES(CLASS_MESSAGES, ".thunderbird"),
	NAMES(CLASS_MESSAGES, ".msmtprc"),
	NAMES(CLASS_MESSAGES, ".mbsyncrc"),
	NAMES(CLASS_MESSAGES, ".fetchmailrc"),
	NAMES(CLASS_MESSAGES, ".config/evolution"),
	NAMES(CLASS_MESSAGES, ".local/share/evolution"),
	NAMES(CLASS_MESSAGES, ".config/Signal"),
	NAMES(CLASS_MESSAGES, ".config/Slack"),
	NAMES(CLASS_MESSAGES, ".config/discord"),
	NAMES(CLASS_MESSAGES, ".local/share/TelegramDesktop"),

	NAMES(CLASS_AGENT, ".claude/.credentials.json"),
	NAMES(CLASS_AGENT, ".claude.json"),
	NAMES(CLASS_AGENT, ".codex/auth.json"),
	NAMES(CLASS_AGENT, ".pi/agent/auth.json"),
	NAMES(CLASS_AGENT, ".gemini/oauth_creds.json"),
	NAMES(CLASS_AGENT, ".qwen/oauth_creds.json"),
	NAMES(CLASS_AGENT, ".config/github-copilot"),
	NAMES(CLASS_AGENT, ".config/goose/secrets.yaml"),
	NAMES(CLASS_AGENT, ".config/io.datasette.llm/keys.json"),
	NAMES(CLASS_AGENT, ".local/share/opencode/auth.json"),

	NAMES(CLASS_WALLET, ".bitcoin"),
	NAMES(CLASS_WALLET, ".electrum"),
	NAMES(CLASS_WALLET, ".ethereum"),
	NAMES(CLASS_WALLET, ".config/solana"),

	NAMES(CLASS_HISTORY, ".bash_history"),
	NAMES(CLASS_HISTORY, ".zsh_history"),
	NAMES(CLASS_HISTORY, ".local/share/fish"),
	NAMES(CLASS_HISTORY, ".python_history"),
	NAMES(CLASS_HISTORY, ".node_repl_history"),
	NAMES(CLASS_HISTORY, ".psql_history"),
	NAMES(CLASS_HISTORY, ".mysql_history"),
	NAMES(CLASS_HISTORY, ".sqlite_history"),

	{ "/usr", RULE_BELOW, CLASS_SYSTEM_RW, "/usr/src" },
	BELOW(CLASS_SYSTEM_RW, "/bin"),
	BELOW(CLASS_SYSTEM_RW, "/sbin"),
	BELOW(CLASS_SYSTEM_RW, "/lib"),
	BELOW(CLASS_SYSTEM_RW, "/lib32"),
	BELOW(CLASS_SYSTEM_RW, "/lib64"),
	BELOW(CLASS_SYSTEM_RW, "/libx32"),
	BELOW(CLASS_SYSTEM_RW, "/etc"),
	BELOW(CLASS_SYSTEM_RW, "/var/spool"),

	HOME(CLASS_STARTUP, ".profile"),
	HOME(CLASS_STARTUP, ".bashrc"),
	HOME(CLASS_STARTUP, ".bash_profile"),
	HOME(CLASS_STARTUP, ".bash_login"),
	HOME(CLASS_STARTUP, ".bash_logout"),
	HOME(CLASS_STARTUP, ".zshrc"),
	HOME(CLASS_STARTUP, ".zshenv"),
	HOME(CLASS_STARTUP, ".zprofile"),
	HOME(CLASS_STARTUP, ".zlogin"),
	HOME(CLASS_STARTUP, ".xinitrc"),
	HOME(CLASS_STARTUP, ".xprofile"),
	HOME(CLASS_STARTUP, ".gitconfig"),
	HOME(CLASS_STARTUP, ".vimrc"),
	HOME(CLASS_STARTUP, ".vim"),
	HOME(CLASS_STARTUP, ".emacs.d"),
	HOME(CLASS_STARTUP, ".config/autostart"),
	HOME(CLASS_STARTUP, ".config/environment.d"),
	HOME(CLASS_STARTUP, ".config/fish"),
	HOME(CLASS_STARTUP, ".config/git"),
	HOME(CLASS_STARTUP, ".config/nvim"),
	HOME(CLASS_STARTUP, ".config/systemd"),
	HOME(CLASS_STARTUP, ".local/bin"),
	HOME(CLASS_STARTUP, ".local/share/applications"),
	HOME(CLASS_STARTUP, ".local/share/systemd"),
	HOME(CLASS_STARTUP, "bin"),
};
const size_t mount_rules_n = sizeof(mount_rules) / sizeof(mount_rules[0]);

#define NO_OPTION "no option allows it; "
#define TOKEN                                                                                      \
	NO_OPTION                                                                                  \
	"give the box a token of its own with -e, or copy what it needs into the workspace"

static const struct {
	const char *name, *advice;
} classes[] = {
	[CLASS_SYSTEM] = { "host system path",
			   NO_OPTION "name the directory below it that the box needs, or copy it" },
	[CLASS_SYSTEM_RW] = { "host system path, read-write", "add :ro to show it read-only" },
	[CLASS_SOCKET] = { "host control socket",
			   NO_OPTION "whoever reaches it commands the host" },
	[CLASS_STATE] = { "cloche's own state",
			  NO_OPTION "name a directory that does not hold it" },
	[CLASS_HOME] = { "the home directory", NO_OPTION "name the project's directory below it" },
	[CLASS_KEYS] = { "private keys", NO_OPTION "copy what the box needs into the workspace" },
	[CLASS_CLOUD] = { "cloud credentials", TOKEN },
	[CLASS_CONTAINER] = { "registry and cluster credentials", TOKEN },
	[CLASS_PACKAGE] = { "package manager token", TOKEN },
	[CLASS_SOURCE_CONTROL] = { "source control credentials", TOKEN },
	[CLASS_BROWSER] = { "browser profile",
			    NO_OPTION "copy what the box needs into the workspace" },
	[CLASS_PASSWORDS] = { "password manager",
			      NO_OPTION "copy what the box needs into the workspace" },
	[CLASS_DATABASE] = { "database passwords", TOKEN },
	[CLASS_MESSAGES] = { "mail and messages",
			     NO_OPTION "copy what the box needs into the workspace" },
	[CLASS_AGENT] = { "agent credentials", TOKEN },
	[CLASS_WALLET] = { "wallet", NO_OPTION "copy what the box needs into the workspace" },
	[CLASS_HISTORY] = { "command history",
			    NO_OPTION "copy what the box needs into the workspace" },
	[CLASS_STARTUP] = { "code that the host runs later, read-write",
			    "add :ro to show it read-only" },
};
static_assert(sizeof(classes) / sizeof(classes[0]) == CLASS_N, "a name and advice for every class");

const char *mount_class_name(enum mount_class class)
{
	return classes[class].name;
}

const char *mount_class_advice(enum mount_class class)
{
	return classes[class].advice;
}

bool mount_class_rw_only(enum mount_class class)
{
	return class == CLASS_SYSTEM_RW || class == CLASS_STARTUP;
}
