// The page docs/doctor.md, made from the table of checks.
#include <fmt/format.h>

#include "doctor/check.h"

namespace weft::doctor {
namespace {

constexpr const char* kHead = R"(# weft doctor

<!-- Made by `weft doctor --list --markdown`; a test compares the two. -->

`weft doctor` looks at a host for what people got wrong, before a model is loaded: each check says
what it read, what it expected, what the fault costs, and the command that mends it.

```sh
weft doctor                              # this machine
weft doctor --hosts a,b,c                # these, by ssh, and across them
weft doctor --save mine.tar              # a snapshot, to look at elsewhere or to show to others
weft doctor --from a.tar --from b.tar    # checks snapshots, alone and across each other
weft doctor --workers b:7000 --key-file weft.key    # measures the links to these
weft doctor --check pcie-link --json     # one check, for programs
```

Exit status 1 where a check fails. Severities: `ok`; `note`, worth knowing; `warn`, costs speed;
`fail`, will not work, or at a fraction of what the hardware gives. `--ignore NAME` turns what a
check finds into notes: for the fault that is known and stays.

## Snapshots

A snapshot is a folder or a tar file of what was read, named by its path: `sys/class/net/eth0/mtu`,
`proc/meminfo`, and `cmd/lspci_-vv` for the output of `lspci -vv` (blanks and slashes become
underscores). So one can be made by hand, on a machine without Weft:

```sh
mkdir -p snap/cmd && lspci -vv >snap/cmd/lspci_-vv && dmesg >snap/cmd/dmesg
cp -r --parents /sys/class/infiniband/*/ports/1/state snap/
tail -n +1 /sys/class/net/*/mtu >snap.txt    # or as one text file, '==> PATH <==' above each
```

What Weft saves holds no keys, no environment, no hardware addresses or serial numbers, no IPv6
addresses, no user names; of the kernel's log and command line only what the checks read. It does
hold IPv4 addresses, the host's name and the firewall's rules. What a link points to is under
`link/`, what only a process can find out under `probe/`, counters read a second time under
`later/`, and what could not be read in `unread`.

## The checks
)";

}  // namespace

std::string ChecksPage() {
    std::string page = kHead;
    for (const Check& check : AllChecks()) {
        page += fmt::format("\n### {}\n\n{}{}\n\n- reads: {}\n- why: {}\n", check.name, check.what,
                            check.across == nullptr ? "" : " Needs two hosts or more.", check.reads,
                            check.why);
    }
    return page;
}

}  // namespace weft::doctor
