// The lines of the kernel's log that checks look at, with the words that kernels and drivers say.
//
// Read are `dmesg` in all of its forms (with and without times, -T, -x, -H), `journalctl -k`, and
// the files that syslog writes. A line is kept where it holds one of the known messages
// (log_rules.h); of its words those stay that belong to the kernel's vocabulary, with PCI
// addresses, short numbers, drivers and names of interfaces. Names of users and programs, paths,
// serial numbers and addresses are not among them, and of the time only the seconds from the log's
// beginning. The lines of known words are lines of a kernel's log again: reading them once more
// changes nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/host_view.h"
#include "doctor/pseudonyms.h"

namespace weft::doctor {

struct LogLine {
    std::string raw;    // as the kernel wrote it, printable, cut to 512 bytes: to be shown
    std::string known;  // its known words: to be looked at, and to be saved
    std::string lower;  // those without the time, in small letters
    std::optional<double> seconds;  // since the machine or the log began; none: not told
};

// `dmesg` of the host; where it may not be read or was not, `journalctl -k` or syslog's file.
Reading KernelLog(HostView& view);

std::vector<LogLine> KernelLogLines(std::string_view log, Pseudonyms& names);
// Names as they are; none where it was not read.
std::vector<LogLine> KernelLogLines(const Reading& log);

// "CPU: 7" of "DRIVER PLACE eth0: NETDEV WATCHDOG: CPU: 7: transmit queue ..." (from Linux 6.6 on)
// stands where older kernels name the device.
bool WatchdogNamesProcessor(std::string_view line);

// Drivers of network cards, as they name themselves in the log.
bool IsNetworkDriver(std::string_view word);
bool IsGpuDriver(std::string_view word);
// The first word of `line` that is the driver of a network card (then of a GPU); "" without. Of
// "RIP: 0010:mlx5e_poll_rx_cq [mlx5_core]", too.
std::string_view NetworkDriverIn(std::string_view line);
std::string_view GpuDriverIn(std::string_view line);
// "0000:01:00.0" in a line; "" without.
std::string_view PciAddressIn(std::string_view line);

}  // namespace weft::doctor
