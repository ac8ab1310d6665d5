// Generates docs/doctor.md from the table of checks.
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
weft doctor --check pcie-link --json     # one check, for programs
weft doctor --save mine.tar              # a snapshot, to look at elsewhere or to show to others
weft doctor --from mine.tar              # checks a snapshot; several --from: across each other, too
```

<!-- not run: other hosts -->
```sh
weft doctor --hosts a,b,c                # these, by ssh; pings and connects between them
weft doctor --workers b:7000 --key-file weft.key    # measures the links to these
weft doctor --cluster home               # hosts of 'weft up', and the links to all
```

Exit status 1 where a check fails. Severities: `ok`; `note`, worth knowing; `warn`, costs speed;
`fail`, will not work, or at a fraction of what the hardware gives. `--ignore NAME` turns what a
check finds into notes: for the fault that is known and stays.

What could not be read is no fault: a check that lacks something says so in a note (what, why, how
to read it), and the summary of a host counts every check once, by the worst that it found: "46
checks: 1 warning, 13 ok, 32 had nothing to read". `-v` names each source that could not be read in
one line, an empty kernel log of a plain user, too; a host without a GPU gets the line "no GPU
found". Nor is what a distribution sets by default: it
gets a note at most. Cures are commands of the host's distribution (by `etc/os-release`, else by its
kernel's release): packages, the kernel's command line, limits, firewalls and networks of Fedora,
Red Hat, Debian, Ubuntu, Proxmox VE, Raspberry Pi OS, SUSE, Arch and NixOS. What a board has
by design is no fault either: a card for 8 lanes in an M.2 or Oculink slot of 4 gets a note with
what it costs, an uncabled port of a card in use gets nothing. Names that hosts give to their parts
are data: they are quoted in every command, and printed without control characters.

## What a fault costs

`cost` is what `weft plan` predicts ([plan.md](plan.md)) with the fault and without it, of the
largest well-known model that fits: on two such hosts as tensor ranks where a link is at fault, on
one where its memory is. A host is known by the PCI ids of its GPUs (`known_by` in `machines/`). Of
another host nobody knows how fast it reads and computes: then only what the wire takes of a token
is told, which any two hosts have in common. Where even the link is not known there is no figure.
`--json` has the parts, in tokens a second and in seconds.

```text
FAIL  pcie-link  0000:01:00.0 Mellanox Technologies MT27800 Family [ConnectX-5]: link 8 GT/s x1
      cost       predicted for qwen3-235b-a22b:q4_k_m on 2 x strix-halo (tp2): 21.0 tokens/s so,
                 24.7 otherwise; a prompt of 4096 tokens 35.4 s so, 7.4 s otherwise
```

## Snapshots

A snapshot is a folder or a tar file of what was read, named by its path: `sys/class/net/eth0/mtu`,
`proc/meminfo`, and `cmd/lspci_-vv` for the output of `lspci -vv` (blanks and slashes become
underscores). So one can be made by hand, on a machine without Weft:

<!-- not run: lspci and an RDMA card -->
```sh
mkdir -p snap/cmd && lspci -vv >snap/cmd/lspci_-vv && dmesg >snap/cmd/dmesg
cp -r --parents /sys/class/infiniband/*/ports/1/state snap/
tail -n +1 /sys/class/net/*/mtu >snap.txt    # or as one text file, '==> PATH <==' above each
```

What a link points to is under `link/` (`link/PATH.to`), what only a process can find out under
`probe/`, counters read a second time under `later/`, and what could not be read in `unread`. A
snapshot that Weft saved ends every line: one that was cut is known by it, and so is a file among
others by hand that end theirs. A file of more than 4 MiB counts as one that could not be read; the
others are looked at. In one made by hand an error in place of an output ("command not found",
"Operation not permitted", in any of ten languages) counts as not read; sudo's lecture and prompt,
line ends of other systems, a byte order mark and NUL bytes at the end are taken off.

## What is saved

`--save` writes an allow-list. For each source that a check reads, a table (`saved_sources.cc`)
names the lines and fields that are kept; of these only numbers, PCI addresses and words of one list
(`saved_words.cc`) are written. A source, a field or a word that is not listed is not saved, so no
secret has to be recognized. `--save` prints which sources are in the archive and which pseudonyms
stand for names; `--save -` prints that to standard error first. `tar xOf mine.tar` shows the whole
archive. The checks find in the archive the same as on the host.

- Not saved: keys, tokens, environments, units of systemd beyond `LimitMEMLOCK`, names of users and
  groups, lists of processes, comments and strings of firewall rules, serial numbers, hardware
  addresses, IPv6 addresses, GUIDs, UUIDs, and lines of the kernel's log that no check reads.
- Pseudonyms: the host (`host-3fa2`); interfaces and RDMA devices with a name of their own
  (`net-3fa2`; `enp1s0f0np0`, `ib0` and `mlx5_0` stay); zones and chains of firewalls; units of
  Weft; control groups (`group`). Files of limits.d, modprobe.d and drop-ins keep their order
  (`0002-file.conf`), because the last one counts. A name has the same pseudonym in every snapshot:
  16 bits of a hash. Nobody can read the name from them, but a guessed name can be checked.
- IPv4 addresses: private, shared and link-local ones (RFC 1918, 6598, 3927) stay, because the
  checks across hosts need them. Public ones become addresses of 198.18.0.0/15, the same on every
  host, in the same subnets; 15 of their 32 bits are lost.
- Saved: versions of the kernel, drivers and firmware, known drivers (another is `other`), models of
  cards, PCI addresses, InfiniBand lids, sizes of memory.

`--real-names` keeps names and addresses; `--hosts` uses it over ssh. Hosts with the same name are
told apart by their file or address: `node (a.tar)` and `node (b.tar)`. If ssh hangs because the
path loses large packets, the finding `reachable` names the size that is lost.

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
