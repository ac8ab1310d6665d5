// Checks memory modules: half of the channels means half of the bandwidth and of the tokens/s.
#include <fmt/format.h>

#include <map>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"

namespace weft::doctor::checks {
namespace {

struct Modules {
    size_t filled = 0, slots = 0, told = 0;  // told: slots by the board's count
    bool virtual_machine = false;
    double rated = 0, configured = 0;      // MT/s of the slowest module
    std::map<std::string, bool> channels;  // by name: a slot is filled
};

// The channel in "Locator: Controller1-ChannelA-DIMM0", "Locator: DIMM_A2" or "Bank Locator: P0
// CHANNEL B", with the processor or controller before it; "": the board names none.
std::string ChannelOf(std::string_view locator) {
    const std::string_view text = Trim(locator.substr(locator.find(':') + 1));
    for (std::string_view key : {"Channel", "CHANNEL ", "CHANNEL_"}) {
        const size_t at = text.find(key);
        if (at != text.npos && at + key.size() < text.size()) {
            return std::string(text.substr(0, at + key.size() + 1));
        }
    }
    const size_t at = text.find("DIMM");
    if (at == text.npos) return {};
    std::string_view rest = text.substr(at + 4);
    while (rest.starts_with('_') || rest.starts_with(' ')) rest.remove_prefix(1);
    const bool letter =
        rest.size() == 2 && rest[0] >= 'A' && rest[0] <= 'P' && rest[1] >= '0' && rest[1] <= '9';
    return letter ? std::string(text.substr(0, text.size() - 1)) : std::string();
}

// Number of channels with a module, and number of all channels of processors that have one.
std::pair<size_t, size_t> Channels(const Modules& modules) {
    std::map<std::string_view, std::pair<size_t, size_t>> processors;
    for (const auto& [name, filled] : modules.channels) {
        // "P1 CHANNEL ", "P1-DIMM": the name without the channel's letter; Intel's controllers
        // count as one.
        std::string_view place = std::string_view(name).substr(0, name.size() - 1);
        if (place.starts_with("Controller")) place = "Controller";
        auto& [used, all] = processors[place];
        used += filled ? 1 : 0;
        ++all;
    }
    std::pair<size_t, size_t> sum{0, 0};
    for (const auto& [place, count] : processors) {
        if (count.first == 0) continue;
        sum.first += count.first;
        sum.second += count.second;
    }
    return sum;
}

Modules ParseMemorySpeed(std::string_view text) {
    Modules modules;
    bool inside = false, filled = false;
    std::string channel;
    for (std::string_view line : Lines(text)) {
        const std::string_view trimmed = Trim(line);
        if (trimmed.starts_with("Number Of Devices: ")) {
            modules.told += static_cast<size_t>(Integer(trimmed.substr(19)).value_or(0));
        }
        for (std::string_view maker : {"QEMU", "VMware", "Microsoft", "Google", "Amazon"}) {
            const bool said = trimmed.starts_with("Manufacturer: ") && Contains(trimmed, maker);
            modules.virtual_machine = modules.virtual_machine || said;
        }
        if (trimmed == "Memory Device") {
            inside = true;
            filled = false;
            ++modules.slots;
        } else if (!inside) {
            continue;
        } else if (trimmed.starts_with("Size: ")) {
            filled = !Contains(trimmed, "No Module");
            modules.filled += filled ? 1 : 0;
            channel.clear();
        } else if (trimmed.starts_with("Locator: ") || trimmed.starts_with("Bank Locator: ")) {
            if (!channel.empty()) continue;
            channel = ChannelOf(trimmed);
            if (!channel.empty()) modules.channels[channel] = modules.channels[channel] || filled;
        } else if (filled && trimmed.starts_with("Speed: ")) {
            const double speed = LeadingNumber(trimmed.substr(7)).value_or(0);
            if (speed > 0 && (modules.rated == 0 || speed < modules.rated)) modules.rated = speed;
        } else if (filled && trimmed.starts_with("Configured Memory Speed: ")) {
            const double speed = LeadingNumber(trimmed.substr(25)).value_or(0);
            if (speed > 0 && (modules.configured == 0 || speed < modules.configured)) {
                modules.configured = speed;
            }
        }
    }
    return modules;
}

// Asks for the cost only if models run from this memory; a discrete GPU has its own.
void AskSlowMemory(HostView& view, double share, Findings& out) {
    CostQuestion question;
    question.host = FactsOf(view);
    question.so.bandwidth_share = share;
    const bool own = question.host.unified_bytes <= 0 && !question.host.gpus.empty();
    if (!own) out.AskCost(question);
}

}  // namespace

void RunMemorySpeed(HostView& view, Findings& out) {
    if (IsVirtualMachine(view)) return;
    Reading table = view.Command("dmidecode -t memory");
    for (const char* words : {"dmidecode -t 17", "dmidecode --type memory", "dmidecode"}) {
        if (!table.found() && !view.Complete()) table = view.Command(words);
    }
    if (!table.found()) return;
    const Modules modules = ParseMemorySpeed(table.text);
    if (modules.filled == 0 || modules.virtual_machine) return;
    const std::string read =
        fmt::format("{} of {} memory slots filled, {:g} MT/s (rated {:g})", modules.filled,
                    modules.slots, modules.configured, modules.rated);
    // A truncated list shows too few modules.
    const bool whole = !table.cut && modules.slots >= modules.told;
    if (modules.filled == 1 && modules.slots > 1 && whole) {
        out.Warn(read, "a module in each channel",
                 fmt::format("one channel: {:.0f} GB/s instead of {:.0f}; decoding reads all "
                             "weights a token, so half the tokens a second",
                             modules.configured * 8e-3, modules.configured * 16e-3),
                 "a second module of the same kind, in the slot of the other channel");
        return AskSlowMemory(view, 0.5, out);
    }
    const auto [used, channels] = Channels(modules);
    if (whole && used > 0 && used < channels) {
        const double share = static_cast<double>(used) / static_cast<double>(channels);
        out.Add(share <= 0.5 ? Severity::kWarn : Severity::kNote,
                fmt::format("{}; {} of {} channels have a module", read, used, channels),
                "a module in each channel",
                fmt::format("{:.0f} % of the memory's bandwidth, and so of the tokens a second of "
                            "a model in it",
                            100 * share),
                "move the modules, or add some, so that each channel has one (the board's manual "
                "names the slots)");
        return AskSlowMemory(view, share, out);
    }
    if (modules.configured > 0 && modules.configured < modules.rated * 0.95) {
        const double share = modules.configured / modules.rated;
        out.Note(read, fmt::format("{:g} MT/s", modules.rated),
                 fmt::format("memory at {:.0f} % of what its modules can, and so the tokens a "
                             "second of what is in it",
                             100 * share),
                 "switch the memory profile (XMP, EXPO) on in the BIOS");
        return AskSlowMemory(view, share, out);
    }
    out.Ok(read);
}

}  // namespace weft::doctor::checks
