#include "doctor/kernel_log.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostLines = 20'000;
constexpr size_t kMostDigits = 6;

// What a line must hold, in small letters.
constexpr std::array<std::string_view, 24> kSentences = {"steer mode is",
                                                         "available pcie bandwidth",
                                                         "insufficient power on the pcie slot",
                                                         "netdev watchdog",
                                                         "transmit queue",
                                                         "high temperature",
                                                         "cable error",
                                                         "unsupported sfp",
                                                         "health compromised",
                                                         "consider upgrading device fw",
                                                         "steering validation failed",
                                                         "mes failed to respond",
                                                         "gpu reset begin",
                                                         "ring gfx",
                                                         "page fault",
                                                         "out of memory: killed process",
                                                         "[hardware error]",
                                                         "package temperature above threshold",
                                                         "entering safe mode",
                                                         "pcie bus error",
                                                         "over temperature",
                                                         "device is lost",
                                                         "fallen off the bus",
                                                         "link is down"};

constexpr std::string_view kWords =
    // drivers
    "mlx4_core mlx4_en <mlx4_ib> mlx4_ib mlx5_core mlx5_ib ice i40e ixgbe igb igc e1000e bnxt_en "
    "bnxt_re cxgb4 qede ionic atlantic irdma r8169 amdgpu pcieport mce thermal thunderbolt amdxdna "
    "r8152 r8125 ax88179_178a cdc_ncm cdc_ether asix tg3 e1000 virtio_net vmxnet3 "
    "NETDEV WATCHDOG CPU0 kernel "
    // mlx4, mlx5 and other cards
    "DMFS high rate steer mode is disabled performance optimized steering default dynamic hybrid "
    "not supported static for limited rule configuration Gb/s available PCIe bandwidth by GT/s "
    "link at capable of with x1 x2 x4 x8 x16 x32 Detected detected insufficient power on the slot "
    "transmit queue timed out Port port module event Module High temperature Temperature sensors "
    "bit set Cable error plugged unplugged unsupported SFP type was detected device's health "
    "compromised reached miss count Consider upgrading device FW Optimized validation failed to "
    "Entering entering Safe Mode package DDP could be loaded Device functionality will Down Up "
    "down Full full duplex speed "
    // PCI Express
    "AER severity=Corrected severity=Correctable severity=Uncorrected severity=Uncorrectable "
    "type=Physical type=Data type=Transaction Corrected Correctable Uncorrected "
    "Uncorrectable (Non-Fatal) (Fatal) Bus Error received severity type "
    "Physical Data Link Transaction Layer (Receiver (Transmitter (Requester (Completer ID) RxErr "
    "BadTLP BadDLLP Timeout "
    "Rollover lost fallen off bus "
    // GPUs
    "MES respond msg REMOVE_QUEUE ADD_QUEUE SUSPEND RESUME msg=REMOVE_QUEUE msg=ADD_QUEUE "
    "msg=SUSPEND msg=RESUME msg=MISC GPU reset begin ring gfx timeout signaled emitted seq "
    "gfx_0.0.0 gfx_0.1.0 gfx_low gfx_high [drm] *ERROR* [gfxhub] [mmhub] page fault vmid pasid "
    "over "
    "range range(SW CTF) ERROR src_id "
    // memory and processor
    "Out out memory Killed process killed [Hardware Error] Machine check events logged Corrected "
    "no action required. required Deferred error, Bank CPU Package temperature above threshold cpu "
    "clock throttled (total events "
    // what joins them
    "ms a an and or in from it the this to was were will be";

const std::set<std::string_view>& Vocabulary() {
    static const std::set<std::string_view> words = [] {
        const auto list = Words(kWords);
        return std::set<std::string_view>(list.begin(), list.end());
    }();
    return words;
}

std::string Lower(std::string_view text) {
    std::string lower(text);
    std::ranges::transform(lower, lower.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return lower;
}

bool IsDigit(char c) {
    return c >= '0' && c <= '9';
}

// "0000:01:00.0"
bool LooksLikePci(std::string_view word) {
    constexpr std::string_view kForm = "hhhh:hh:hh.h";
    if (word.size() != kForm.size()) return false;
    for (size_t i = 0; i < word.size(); ++i) {
        const bool fits = kForm[i] == 'h' ? std::isxdigit(static_cast<unsigned char>(word[i])) != 0
                                          : word[i] == kForm[i];
        if (!fits) return false;
    }
    return true;
}

// "31.504", "27W", "5120", "100%"
bool IsShortNumber(std::string_view word) {
    size_t at = 0;
    while (at < word.size() && IsDigit(word[at])) ++at;
    if (at == 0 || at > kMostDigits) return false;
    if (at < word.size() && word[at] == '.') {
        const size_t point = at++;
        while (at < word.size() && IsDigit(word[at])) ++at;
        if (at == point + 1 || at - point > 4) return false;
    }
    const std::string_view unit = word.substr(at);
    return unit.empty() || unit == "W" || unit == "%" || unit == "C" || unit == "ms";
}

// The time that a line begins with, "[    9.162204]"; "" without.
std::string_view TimeOf(std::string_view line) {
    if (!line.starts_with('[')) return {};
    const size_t end = line.find(']');
    if (end == std::string_view::npos || end > 20) return {};
    const std::string_view inside = Trim(line.substr(1, end - 1));
    const bool time = !inside.empty() &&
                      std::ranges::all_of(inside, [](char c) { return IsDigit(c) || c == '.'; });
    return time ? line.substr(0, end + 1) : std::string_view();
}

// Where a line of the watchdog names its device.
enum class Named { kNever, kBefore, kAfter };

Named WatchdogNames(std::string_view line) {
    if (!Contains(line, "NETDEV WATCHDOG:")) return Named::kNever;
    return WatchdogNamesProcessor(line) ? Named::kBefore : Named::kAfter;
}

std::string Kept(std::string_view line, Names& names) {
    const std::string_view time = TimeOf(line);
    std::string kept(time);
    const Named named = WatchdogNames(line);
    const auto words = Words(line.substr(time.size()));
    for (size_t i = 0; i < words.size(); ++i) {
        constexpr std::string_view kEnds = ".,:;!)";
        const std::string_view word = words[i];
        const size_t last = word.find_last_not_of(kEnds);
        if (last == std::string_view::npos) continue;
        const size_t begin = word.starts_with('(') ? 1 : 0;
        if (begin > last) continue;
        const std::string_view core = word.substr(begin, last + 1 - begin);
        const std::string_view opened = word.substr(0, begin), closed = word.substr(last + 1);
        const bool known = Vocabulary().contains(core) || Vocabulary().contains(word) ||
                           Vocabulary().contains(word.substr(0, last + 1));
        const bool device =
            (named == Named::kAfter && i > 0 && words[i - 1] == "WATCHDOG:") ||
            (named == Named::kBefore && i + 1 < words.size() && words[i + 1] == "NETDEV");
        std::string shown;
        if (device) {
            shown = names.Interface(core);
        } else if (known || LooksLikePci(core) || IsShortNumber(core) || IsUsualDeviceName(core)) {
            shown = core;
        }
        if (shown.empty()) continue;
        if (!kept.empty()) kept += ' ';
        kept += opened;
        kept += shown;
        kept += closed;
    }
    return kept;
}

}  // namespace

bool WatchdogNamesProcessor(std::string_view line) {
    return Contains(line, "NETDEV WATCHDOG: CPU: ");
}

std::vector<LogLine> KernelLogLines(std::string_view dmesg, Names& names) {
    constexpr size_t kMostShown = 200;
    std::vector<LogLine> lines;
    for (std::string_view line : Lines(dmesg)) {
        if (lines.size() >= kMostLines) break;
        const std::string lower = Lower(line.substr(0, 1024));
        const bool known = std::ranges::any_of(
            kSentences, [&](std::string_view sentence) { return Contains(lower, sentence); });
        if (known) lines.push_back({Printable(line.substr(0, kMostShown)), Kept(line, names)});
    }
    return lines;
}

std::vector<LogLine> KernelLogLines(const Reading& dmesg) {
    Names names(true);
    return dmesg.found() ? KernelLogLines(dmesg.text, names) : std::vector<LogLine>();
}

}  // namespace weft::doctor
