// SPDX-License-Identifier: Apache-2.0
/* The filter lists denied calls, not allowed ones, so that a new call of a new C library does not
 * end a server. The answer is EPERM, which all code survives. */
#include "sandbox.h"

#include "veneer/base/log.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CAP(n) ((uint64_t)1 << (n))

/* The first two rows and MAC: read, create, own, label and link files of any owner. SYS_ADMIN:
 * trusted.*, backing files, mounts. SYS_RESOURCE: the blocks reserved for root, as for overlayfs.
 * SYS_PTRACE: read the privileges and namespaces of a client in /proc. SYS_NICE:
 * autogroup_weight.h. */
static const uint64_t needed = CAP(CAP_CHOWN) | CAP(CAP_DAC_OVERRIDE) | CAP(CAP_DAC_READ_SEARCH) |
			       CAP(CAP_FOWNER) | CAP(CAP_FSETID) | CAP(CAP_SETFCAP) |
			       CAP(CAP_MKNOD) | CAP(CAP_MAC_ADMIN) | CAP(CAP_MAC_OVERRIDE) |
			       CAP(CAP_SYS_ADMIN) | CAP(CAP_SYS_RESOURCE) | CAP(CAP_SYS_PTRACE) |
			       CAP(CAP_SYS_NICE);
/* CAP_LEASE: without it some snapshots are refused (mount_freeze.h). */
#define KEPT (needed | CAP(CAP_LEASE))

static const int denied[] = {
	SYS_execve,
	SYS_execveat,
	SYS_bpf,
	SYS_perf_event_open,
	SYS_userfaultfd,
	SYS_process_vm_readv,
	SYS_process_vm_writev,
	SYS_kcmp,
#ifndef __SANITIZE_ADDRESS__ /* its leak check stops the threads with it */
	SYS_ptrace,
#endif
#ifdef SYS_pidfd_getfd
	SYS_pidfd_getfd,
#endif
	SYS_init_module,
	SYS_finit_module,
	SYS_delete_module,
	SYS_kexec_load,
	SYS_reboot,
	SYS_syslog,
#ifdef SYS_kexec_file_load
	SYS_kexec_file_load,
#endif
#ifdef SYS_iopl
	SYS_iopl,
	SYS_ioperm,
	SYS_modify_ldt,
#endif
	SYS_swapon,
	SYS_swapoff,
	SYS_acct,
	SYS_quotactl,
	SYS_vhangup,
	SYS_personality,
	SYS_settimeofday,
	SYS_clock_settime,
	SYS_adjtimex,
	SYS_clock_adjtime,
	SYS_sethostname,
	SYS_setdomainname,
	SYS_add_key,
	SYS_request_key,
	SYS_keyctl,
	/* a file handle reaches files outside of all layers */
	SYS_open_by_handle_at,
	SYS_fanotify_init,
	SYS_chroot,
	SYS_pivot_root,
	SYS_setns,
	SYS_unshare,
	SYS_capset,
	SYS_setuid,
	SYS_setgid,
	SYS_setreuid,
	SYS_setregid,
	SYS_setresuid,
	SYS_setresgid,
	SYS_setgroups,
};

/* open_tree and mount_setattr stay allowed: a lower layer is read through a read-only clone of its
 * mount. */
static const int denied_to_servers[] = {
	SYS_mount, SYS_umount2, SYS_move_mount, SYS_fsopen, SYS_fsmount, SYS_fsconfig, SYS_fspick,
};

#define N_DENIED (sizeof(denied) / sizeof(*denied))
#define N_MORE	 (sizeof(denied_to_servers) / sizeof(*denied_to_servers))

#if defined(__x86_64__)
#define ARCH	 AUDIT_ARCH_X86_64
#define NR_LIMIT 0x40000000u /* the x32 numbers of the same calls begin here */
#elif defined(__aarch64__)
#define ARCH	 AUDIT_ARCH_AARCH64
#define NR_LIMIT UINT32_MAX
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCH	 AUDIT_ARCH_RISCV64
#define NR_LIMIT UINT32_MAX
#elif defined(__powerpc64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ARCH	 AUDIT_ARCH_PPC64LE
#define NR_LIMIT UINT32_MAX
#elif defined(__s390x__)
#define ARCH	 AUDIT_ARCH_S390X
#define NR_LIMIT UINT32_MAX
#else
#define ARCH	 0u /* no filter */
#define NR_LIMIT UINT32_MAX
#endif

static uint64_t started_with;
static bool is_confined;

static int get_caps(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &head, data) < 0 ? -errno : 0;
}

static uint64_t effective(const struct __user_cap_data_struct data[2])
{
	return (uint64_t)data[1].effective << 32 | data[0].effective;
}

uint64_t sandbox_started_with(void)
{
	struct __user_cap_data_struct data[2];

	if (is_confined)
		return started_with;
	return get_caps(data) < 0 ? 0 : effective(data);
}

uint64_t sandbox_kept(void)
{
	return needed;
}

static int drop_caps(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };

	for (int i = 0; i < 2; i++) {
		const uint32_t mask = (uint32_t)(KEPT >> (32 * i));

		data[i].effective &= mask;
		data[i].permitted &= mask;
		data[i].inheritable &= mask;
	}
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

struct program {
	struct sock_filter code[N_DENIED + N_MORE + 8];
	unsigned short len;
};

static void put(struct program *p, struct sock_filter f)
{
	p->code[p->len++] = f;
}

/* The program depends on number and architecture alone, so the kernel caches the allowed calls and
 * skips it. */
static void write_program(struct program *p, bool mounts)
{
	const size_t more = mounts ? 0 : N_MORE;
	uint8_t left = (uint8_t)(N_DENIED + more +
				 2); /* instructions between the second jump and the denial */

	_Static_assert(N_DENIED + N_MORE + 4 < UINT8_MAX, "jumps are short");
	p->len = 0;
	put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					    offsetof(struct seccomp_data, arch)));
	put(p,
	    (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, (uint8_t)(left + 1)));
	put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					    offsetof(struct seccomp_data, nr)));
	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, NR_LIMIT, --left, 0));
	for (size_t i = 0; i < N_DENIED + more; i++) {
		const int nr = i < N_DENIED ? denied[i] : denied_to_servers[i - N_DENIED];

		put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, --left,
						    0));
	}
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
}

static int install_filter(bool mounts)
{
	struct program p;
	struct sock_fprog prog = { .filter = p.code };

	if (!ARCH)
		return -EOPNOTSUPP;
	write_program(&p, mounts);
	prog.len = p.len;
	/* With SPEC_ALLOW the kernel leaves out its guard against speculative execution, which
	 * protects against foreign code in the process; we run none. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &prog) ==
		    0 ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0)
		return 0;
	return -errno;
}

/* Is /etc/mtab a regular file and not a link into /proc? Then the distribution's libfuse has
 * mount(8) write to it, in a child process. */
static bool has_list_of_mounts(void)
{
	struct stat st;

	return lstat("/etc/mtab", &st) == 0 && S_ISREG(st.st_mode);
}

void sandbox_enter(bool mounts)
{
	struct __user_cap_data_struct data[2];
	int r = is_confined ? -EALREADY : get_caps(data);

	if (r == -EALREADY)
		return;
	if (r == 0) {
		started_with = effective(data);
		is_confined = true;
		r = drop_caps(data);
	}
	if (r < 0)
		log_debug("cannot drop capabilities: %s", strerror(-r));
	/* fusermount3 gains its privileges at exec. */
	if (mounts && !(r == 0 && effective(data) & CAP(CAP_SYS_ADMIN)))
		return;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		log_debug("cannot give up new privileges: %s", strerror(errno));
	r = mounts && has_list_of_mounts() ? 0 : install_filter(mounts);
	if (r < 0)
		log_debug("no system-call filter: %s", strerror(-r));
}
