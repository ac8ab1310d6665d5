// Checks memory modules: half of the channels means half of the bandwidth and of the tokens/s.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

struct Modules {
    size_t filled = 0, slots = 0, declared = 0;  // declared: slots by the board's count
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
        std::string_view processor = std::string_view(name).substr(0, name.size() - 1);
        if (processor.starts_with("Controller")) processor = "Controller";
        auto& [used, all] = processors[processor];
        used += filled ? 1 : 0;
        ++all;
    }
    std::pair<size_t, size_t> sum{0, 0};
    for (const auto& [processor, count] : processors) {
        if (count.first == 0) continue;
        sum.first += count.first;
        sum.second += count.second;
    }
    return sum;
}

void TakeSlower(double& slowest, std::string_view value) {
    const double speed = LeadingNumber(value).value_or(0);
    if (speed > 0 && (slowest == 0 || speed < slowest)) slowest = speed;
}

Modules ParseModules(std::string_view text) {
    Modules modules;
    bool inside = false, filled = false;
    std::string channel;
    for (std::string_view line : Lines(text)) {
        const std::string_view trimmed = Trim(line);
        const std::string_view key = trimmed.substr(0, trimmed.find(':'));
        const std::string_view value = trimmed.substr(std::min(key.size() + 1, trimmed.size()));
        if (key == "Number Of Devices") {
            modules.declared += static_cast<size_t>(Integer(value).value_or(0));
        }
        for (std::string_view maker : {"QEMU", "VMware", "Microsoft", "Google", "Amazon"}) {
            modules.virtual_machine |= key == "Manufacturer" && Contains(value, maker);
        }
        if (trimmed == "Memory Device") {
            inside = true;
            filled = false;
            ++modules.slots;
        } else if (!inside) {
            continue;
        } else if (key == "Size") {
            filled = !Contains(value, "No Module");
            modules.filled += filled ? 1 : 0;
            channel.clear();
        } else if (key == "Locator" || key == "Bank Locator") {
            if (!channel.empty()) continue;
            channel = ChannelOf(trimmed);
            if (!channel.empty()) modules.channels[channel] |= filled;
        } else if (filled && key == "Speed") {
            TakeSlower(modules.rated, Trim(value));
        } else if (filled && key == "Configured Memory Speed") {
            TakeSlower(modules.configured, Trim(value));
        }
    }
    return modules;
}

// Asks for the cost only if models run from this memory; a discrete GPU has its own.
void AskMemoryCost(HostView& view, double share, Findings& out) {
    CostQuestion question;
    question.host = FactsOf(view);
    question.faulty.bandwidth_share = share;
    const bool own = question.host.unified_bytes <= 0 && !question.host.gpus.empty();
    if (!own) out.AskCost(question);
}

}  // namespace

void RunMemorySpeed(HostView& view, Findings& out) {
    if (IsVirtualMachine(view)) return;
    Reading table = view.Command("dmidecode -t memory");
    for (const char* command : {"dmidecode -t 17", "dmidecode --type memory", "dmidecode"}) {
        if (!table.found() && !view.Complete()) table = view.Command(command);
    }
    if (!table.found()) return;
    const Modules modules = ParseModules(table.text);
    if (modules.filled == 0 || modules.virtual_machine) return;
    const std::string read =
        fmt::format("{} of {} memory slots filled, {:g} MT/s (rated {:g})", modules.filled,
                    modules.slots, modules.configured, modules.rated);
    // A truncated list shows too few modules.
    const bool whole = !table.cut && modules.slots >= modules.declared;
    const auto [used, channels] = Channels(modules);
    if (modules.filled == 1 && modules.slots > 1 && whole) {
        Report<found::kMemoryOneModule>(view, out, read, modules.configured * 8e-3,
                                        modules.configured * 16e-3);
        AskMemoryCost(view, 0.5, out);
    } else if (whole && used > 0 && used < channels) {
        const double share = static_cast<double>(used) / static_cast<double>(channels);
        ReportAs<found::kMemoryChannels>(share <= 0.5 ? Severity::kWarn : Severity::kNote, view,
                                         out, read, used, channels, 100 * share);
        AskMemoryCost(view, share, out);
    } else if (modules.configured > 0 && modules.configured < modules.rated * 0.95) {
        const double share = modules.configured / modules.rated;
        Report<found::kMemorySlow>(view, out, read, modules.rated, 100 * share);
        AskMemoryCost(view, share, out);
    } else {
        out.Ok(read);
    }
}

}  // namespace weft::doctor::checks
