#include "doctor/kernel_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "doctor/facts.h"
#include "doctor/log_rules.h"
#include "doctor/saved_words.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostLines = 20'000;
constexpr size_t kMostLooked = 1024;  // bytes of a line that are parsed

constexpr std::string_view kNetworkDrivers =
    "mlx4_core mlx4_en mlx4_ib mlx5_core mlx5_ib ice i40e ixgbe igb igc e1000e irdma bnxt_en "
    "bnxt_re cxgb4 qede qed qedr ionic atlantic r8169 r8168 r8125 r8126 r8127 tg3 sfc cxi_core "
    "cxi_ss1 "
    "cxi_eth hfi1 efa ena mana be2net ib_ipoib thunderbolt_net thunderbolt-net";
constexpr std::string_view kGpuDrivers = "amdgpu nvidia xe i915 nouveau";

double SecondsOf(std::string_view clock) {  // "13:00:43"; IsClock
    const auto parts = Split(clock, ':');
    return LeadingNumber(parts[0]).value_or(0) * 3600 + LeadingNumber(parts[1]).value_or(0) * 60 +
           LeadingNumber(parts[2]).value_or(0);
}

bool IsClock(std::string_view word) {  // "13:00:43", "13:00:43.123456+00:00"
    return word.size() >= 8 && AreDigits(word.substr(0, 2), 2) && word[2] == ':' &&
           AreDigits(word.substr(3, 2), 2) && word[5] == ':' && AreDigits(word.substr(6, 1), 1);
}

struct Message {
    std::string_view text;
    std::optional<double> seconds;
    std::string_view time = {};  // "[    9.162204]", if it is the kernel's own time
};

// Time of day and day of the month from "Mon Nov 23 13:00:43 2026" or
// "2026-11-23T13:00:43.1+00:00".
std::optional<double> DateSeconds(std::string_view text) {
    constexpr double kDay = 86400;
    double day = 0;
    for (std::string_view word : Words(text)) {
        if (word.size() > 18 && word[4] == '-' && word[10] == 'T' && IsClock(word.substr(11))) {
            return LeadingNumber(word.substr(8)).value_or(0) * kDay + SecondsOf(word.substr(11));
        }
        if (IsClock(word)) return day * kDay + SecondsOf(word);
        if (word.size() <= 2) day = Number(word).value_or(day);
    }
    return {};
}

// Removes "[    9.162204] ", "[Mon Nov 23 13:00:43 2026] ", "[  +0.000012] ", "[Nov23 13:00] ", and
// the caller, "[  T123] ", that some kernels add.
Message WithoutBrackets(Message message) {
    for (int i = 0; i < 2 && message.text.starts_with('['); ++i) {
        const size_t end = message.text.find(']');
        if (end == message.text.npos || end > 40) return message;
        const std::string_view inside = Trim(message.text.substr(1, end - 1));
        const bool number =
            !inside.empty() && inside.find_first_not_of("0123456789.") == inside.npos;
        const bool caller = BeginsWithOneOf(inside, "T C") && AreDigits(inside.substr(1), 40);
        const bool delta = inside.starts_with('+') && LeadingNumber(inside.substr(1)).has_value();
        const auto date = DateSeconds(inside);
        const bool day = inside.size() > 6 && inside.size() < 16 && Contains(inside, ":");
        if (!number && !caller && !delta && !date && !day) return message;
        if (number) {
            message.seconds = Number(inside);
            message.time = message.text.substr(0, end + 1);
        }
        if (!number && date) message.seconds = date;
        message.text = Trim(message.text.substr(end + 1));
    }
    return message;
}

// Message and time of a line of dmesg, journalctl or syslog.
Message MessageOf(std::string_view line) {
    Message message{Trim(line), {}};
    if (message.text.starts_with('<') && message.text.find('>') < 5) {
        message.text = message.text.substr(message.text.find('>') + 1);
    }
    // "kern  :warn  : " from dmesg -x.
    if (message.text.starts_with("kern ") && message.text.find(':') < 8) {
        const size_t second = message.text.find(':', message.text.find(':') + 1);
        if (second < 20) message.text = Trim(message.text.substr(second + 1));
    }
    message = WithoutBrackets(message);
    // "Nov 23 13:00:43 host kernel: ", or the same with an ISO date.
    const size_t kernel = message.text.substr(0, 160).find(" kernel: ");
    if (kernel == message.text.npos) return message;
    const std::string_view before = message.text.substr(0, kernel);
    const auto date = DateSeconds(before);
    const bool host_only = Words(before).size() == 1 && message.seconds;  // short-monotonic
    if (!date && !host_only) return message;
    if (date) message.seconds = date;
    message.text = Trim(message.text.substr(kernel + 9));
    return WithoutBrackets(message);  // syslog keeps the kernel's own time
}

// The driver of a kernel source path: "drivers/net/ethernet/mellanox/mlx5/core/en_rx.c:123" ->
// "mlx5_core".
std::string_view DriverOfSource(std::string_view path) {
    if (!path.starts_with("drivers/")) return {};
    for (std::string_view part : Split(path, '/')) {
        part = part.substr(0, part.find(':'));
        if (part == "r8169_main.c") return "r8169";
        for (std::string_view list : {kNetworkDrivers, kGpuDrivers}) {
            for (std::string_view driver : Words(list)) {
                const std::string_view stem = driver.substr(0, driver.find('_'));
                if (part == driver || (part == stem && driver != "bnxt_re")) return driver;
            }
        }
    }
    return {};
}

// The kept part of a word; "": private text.
std::string KeptWord(std::string_view word, Pseudonyms& names) {
    if (Contains(word, "+0x")) return "+0x";  // a frame of a trace
    const std::string_view driver = DriverOfSource(Bare(word));
    return driver.empty() ? SavedLogWord(word, names) : std::string(driver);
}

std::string Kept(std::string_view message, Pseudonyms& names) {
    std::string kept;
    const bool watchdog = Contains(message, "NETDEV WATCHDOG:");
    const bool before = WatchdogNamesProcessor(message);
    const auto words = Words(message);
    const auto is = [&](size_t at, std::string_view word) {
        return at < words.size() && words[at] == word;
    };
    // A line that begins with an unknown word may come from any program, so its numbers are
    // dropped.
    const bool foreign = KeptWord(words[0], names).empty();
    for (size_t i = 0; i < words.size(); ++i) {
        const bool device =
            watchdog &&
            (before ? is(i + 1, "NETDEV") : i > 1 && is(i - 2, "NETDEV") && is(i - 1, "WATCHDOG:"));
        std::string shown;
        if (device) {
            const std::string_view colon = words[i].ends_with(':') ? ":" : "";
            shown = names.Interface(words[i].substr(0, words[i].size() - colon.size()));
            shown += colon;
        } else {
            // Firmware records (APEI), "{1}[Hardware Error]:", are numbered.
            const bool numbered = words[i].starts_with('{') && words[i].ends_with("}[Hardware");
            shown = KeptWord(numbered ? "[Hardware" : words[i], names);
            const std::string_view bare = Bare(words[i]);
            if (foreign && LeadingNumber(bare) && !Contains(bare, ":")) continue;
        }
        if (!shown.empty()) kept += (kept.empty() ? "" : " ") + shown;
    }
    return kept;
}

// Frames of a trace, and registers, name the driver that crashed.
bool IsFrame(std::string_view lower) {
    return Contains(lower, "+0x") &&
           (!NetworkDriverIn(lower).empty() || !GpuDriverIn(lower).empty());
}

bool IsKnown(std::string_view lower) {
    using enum LogSubject;
    return IsFrame(lower) || FindRule(lower, {kCard, kGpu, kMachine, kCrash, kKeep}) != nullptr;
}

std::string_view DriverIn(std::string_view line, std::string_view drivers) {
    for (std::string_view word : Words(line)) {
        if (IsOneOf(Bare(word), drivers)) return Bare(word);
    }
    return {};
}

bool IsEmptyJournal(std::string_view text) {
    return Trim(text).empty() || Contains(text, "-- No entries --");
}

// The first source that is not empty.
Reading FirstLog(HostView& view) {
    for (const char* words : {"journalctl -k -b -o short-monotonic -n 20000", "journalctl -k",
                              "journalctl -b -k", "journalctl --dmesg", "journalctl -b"}) {
        if (view.Complete() && !std::string_view(words).ends_with("20000")) continue;
        Reading journal = CommandLike(view, words);
        if (journal.found() && !IsEmptyJournal(journal.text)) return journal;
    }
    if (view.Complete()) return {};
    for (const char* path : {"var/log/dmesg", "var/log/kern.log", "var/log/messages"}) {
        Reading file = view.Read(path);
        if (file.found() && !Trim(file.text).empty()) return file;
    }
    return {};
}

std::vector<LogLine> ReadLines(HostView& view) {
    Pseudonyms names(true);
    const Reading log = KernelLog(view);
    return log.found() ? KernelLogLines(log.text, names) : std::vector<LogLine>();
}

}  // namespace

Reading ReadableLog(Reading log) {
    if (!log.found()) return log;
    if (log.text.starts_with("\xff\xfe") || log.text.starts_with("\xfe\xff")) log.text.erase(0, 2);
    std::erase(log.text, '\0');
    const std::string_view said = Trim(log.text);
    constexpr const char* kNoText = "the log is empty or not text";
    if (said.empty()) return {ReadState::kRefused, kNoText};
    if (said.starts_with("dmesg: ") && Lines(said).size() < 3) {
        return {ReadState::kRefused, std::string(said)};
    }
    const auto strange = std::ranges::count_if(said, [](unsigned char c) {
        return c >= 0x80 || (c < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != 0x1b);
    });
    if (strange > std::ssize(said) / 8) return {ReadState::kRefused, kNoText};
    return log;
}

Reading KernelLog(HostView& view) {
    Reading dmesg = ReadableLog(CommandLike(view, "dmesg"));
    if (!dmesg.found() && !view.Complete()) {
        if (Reading sudo = ReadableLog(CommandLike(view, "sudo dmesg")); sudo.found()) return sudo;
    }
    if (dmesg.found()) return dmesg;
    Reading other = ReadableLog(FirstLog(view));
    return other.found() ? other : dmesg;
}

bool WatchdogNamesProcessor(std::string_view line) {
    return Contains(line, "NETDEV WATCHDOG: CPU: ");
}

bool IsNetworkDriver(std::string_view word) {
    return IsOneOf(word, kNetworkDrivers);
}

std::string_view NetworkDriverIn(std::string_view line) {
    return DriverIn(line, kNetworkDrivers);
}

std::string_view GpuDriverIn(std::string_view line) {
    return DriverIn(line, kGpuDrivers);
}

std::string_view PciAddressIn(std::string_view line) {
    for (std::string_view word : Words(line)) {
        if (IsPciAddress(Bare(word))) return Bare(word);
    }
    return {};
}

std::vector<LogLine> KernelLogLines(std::string_view log, Pseudonyms& names) {
    constexpr size_t kMostShown = 512;
    std::vector<LogLine> lines;
    for (std::string_view line : Lines(log)) {
        if (lines.size() >= kMostLines) break;
        const Message message = MessageOf(line.substr(0, kMostLooked));
        if (message.text.empty() || !IsKnown(LowerCase(message.text))) continue;
        LogLine kept{Printable(line.substr(0, kMostShown)), Kept(message.text, names), "",
                     message.seconds};
        kept.lower = LowerCase(kept.known);
        // A line of unknown words may now be empty.
        if (!IsKnown(kept.lower)) continue;
        if (kept.seconds) {
            kept.known = message.time.empty()
                             ? fmt::format("[{:12.6f}] {}", *kept.seconds, kept.known)
                             : fmt::format("{} {}", message.time, kept.known);
        }
        lines.push_back(std::move(kept));
    }
    return lines;
}

const std::vector<LogLine>& KernelLogLines(HostView& view) {
    return view.Derived(ReadLines);
}

}  // namespace weft::doctor
