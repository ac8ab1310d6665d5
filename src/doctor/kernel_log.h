// Reads the kernel log: the lines that checks use, reduced to known words of kernels and drivers.
//
// The log is `dmesg` in any of its forms (with and without times, -T, -x, -H), `journalctl -k`, or
// a syslog file. A line is kept if it contains a known message (log_rules.h). The words that stay
// are words of the kernel's vocabulary, PCI addresses, short numbers, drivers and interface names.
// Names of users and programs, paths, serial numbers and other addresses are dropped. The time
// becomes seconds since the start of the log. A log that was reduced in this way gives the same
// result when it is read again.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/host_view.h"
#include "doctor/pseudonyms.h"

namespace weft::doctor {

struct LogLine {
    std::string raw;    // as the kernel wrote it, printable, cut to 512 bytes; for display
    std::string known;  // the known words of the line; for checks and snapshots
    std::string lower;  // `known` without the time, in lower case
    std::optional<double> seconds;  // since boot or the start of the log
};

// The kernel log of the host: `dmesg`, or if that could not be read, `journalctl -k` or a syslog
// file.
Reading KernelLog(HostView& view);

// Returns the log without the zero bytes of UTF-16. The state is kRefused if the log is empty (a
// plain user may not see it), compressed, or an error message of the program.
Reading ReadableLog(Reading log);

std::vector<LogLine> KernelLogLines(std::string_view log, Pseudonyms& names);
// The lines of the host's log, with real names. Empty if the log was not read.
const std::vector<LogLine>& KernelLogLines(HostView& view);

// Whether the line has a processor, "CPU: 7", in the position in which kernels before Linux 6.6
// print the device: "DRIVER PLACE eth0: NETDEV WATCHDOG: CPU: 7: transmit queue ..."
bool WatchdogNamesProcessor(std::string_view line);

// Whether the word is the name of a network driver as it appears in the log.
bool IsNetworkDriver(std::string_view word);
// The first network driver, or the first GPU driver, that the line names; "": none. Brackets are
// allowed, as in "RIP: 0010:mlx5e_poll_rx_cq [mlx5_core]".
std::string_view NetworkDriverIn(std::string_view line);
std::string_view GpuDriverIn(std::string_view line);
// "0000:01:00.0" in a line; "": none.
std::string_view PciAddressIn(std::string_view line);

}  // namespace weft::doctor
