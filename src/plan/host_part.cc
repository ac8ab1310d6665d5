#include "plan/host_part.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

namespace weft::plan {
namespace {

// The share of the modules that a model may use, and the price of 1 GB in EUR of late 2025.
constexpr double kUsable = 15.0 / 16, kPriceOfGigabyte = 5;
constexpr double kFlopsOfCore = 32 * 4e9;

struct Channels {
    const char* name;
    double bytes_per_s;
    const char* about;
};
constexpr Channels kChannels[] = {{"ddr5", 80e9, "two channels of DDR5-5000"},
                                  {"ddr4", 51.2e9, "two channels of DDR4-3200"}};

Figure BandwidthOf(const Channels& channels) {
    return {channels.bytes_per_s * kSustained, Mark::kGuessed,
            fmt::format("{:.0f} % of {} ({:.0f} GB/s)", kSustained * 100, channels.about,
                        channels.bytes_per_s * 1e-9)};
}

Figure ComputeOf(int threads) {
    return {threads * kFlopsOfCore, Mark::kGuessed,
            fmt::format("{} cores, 32 FLOP a clock, 4 GHz", threads)};
}

}  // namespace

void HostFields(ObjectFields& io, HostPart& host) {
    io.Need("memory", Unit::kBytes, host.memory);
    if (host.bandwidth.source.empty()) host.bandwidth = BandwidthOf(kChannels[0]);
    io.Take("bandwidth", Unit::kRate, host.bandwidth);
    io.Count("threads", host.threads, 1, 1024);
    if (host.compute.source.empty()) host.compute = ComputeOf(host.threads);
    io.Take("compute", Unit::kCompute, host.compute);
    io.Take("drive", Unit::kRate, host.drive);
}

std::optional<HostPart> ParseHostWord(std::string_view word) {
    std::string plain;
    for (const unsigned char c : word) {
        if (c != ' ' && c != '-') plain += static_cast<char>(std::tolower(c));
    }
    const Channels* channels = std::ranges::find_if(
        kChannels, [&](const Channels& row) { return plain.ends_with(row.name); });
    const bool is_named = channels != std::end(kChannels);
    if (is_named) plain.resize(plain.size() - 4);
    double size = 0;
    const char* const end = plain.data() + plain.size();
    const auto [unit, error] = std::from_chars(plain.data(), end, size);
    if (error != std::errc() || !(size > 0)) return std::nullopt;
    constexpr std::pair<std::string_view, double> kUnits[] = {
        {"gb", 1e9}, {"gib", 0x1p30}, {"tb", 1e12}, {"tib", 0x1p40}};
    const auto* found =
        std::ranges::find(kUnits, std::string_view(unit, static_cast<size_t>(end - unit)),
                          &std::pair<std::string_view, double>::first);
    if (found == std::end(kUnits) || size * found->second > 1e15) return std::nullopt;
    HostPart host;
    host.memory = {size * found->second * kUsable, Mark::kGuessed, "less what the system takes"};
    host.bandwidth = BandwidthOf(is_named ? *channels : kChannels[0]);
    host.compute = ComputeOf(host.threads);
    return host;
}

Status AddHost(std::span<Machine> hosts, const std::string& word, const HostPart& part) {
    if (hosts.empty() || hosts[0].shares_memory() || hosts[0].host) {
        return MakeError(ErrorCode::kUsage,
                         "--machines: '{}' is the memory of a host of GPUs, which stands once "
                         "behind its GPUs: rtx-3090+128gb",
                         word);
    }
    for (Machine& machine : hosts) {
        std::string plain;
        for (const char c : word) {
            if (c != ' ') plain += c;
        }
        machine.word += "+" + plain;
        if (machine.price) machine.price->value += part.memory.value * 1e-9 * kPriceOfGigabyte;
        machine.host = part;
    }
    return {};
}

Machine ProcessorOf(const HostPart& host, int64_t ranks) {
    const auto share = static_cast<double>(ranks);
    Machine machine;
    machine.name = machine.kind = machine.word = "the host's processor";
    machine.pool = backend::MemoryKind::kHost;
    machine.threads = std::max(1, host.threads / static_cast<int>(ranks));
    machine.memory = host.memory;
    machine.bandwidth = host.bandwidth;
    machine.bandwidth.value /= share;
    machine.compute = host.compute;
    machine.compute.value /= share;
    return machine;
}

std::string HostNote(const ClusterSpec& cluster) {
    std::vector<std::string> parts;
    for (const Machine& machine : cluster.hosts) {
        if (!machine.host) continue;
        const HostPart& host = *machine.host;
        std::vector<std::string> guesses;
        if (host.bandwidth.mark == Mark::kGuessed) {
            guesses.push_back(fmt::format("memory that reads {:.0f} GB/s, {}",
                                          host.bandwidth.value * 1e-9, host.bandwidth.source));
        }
        if (host.compute.mark == Mark::kGuessed) {
            guesses.push_back(fmt::format("a processor of {:.2f} TFLOP/s, {}",
                                          host.compute.value * 1e-12, host.compute.source));
        }
        if (guesses.empty()) continue;
        std::string part =
            fmt::format("{} is assumed to have {}", machine.word, fmt::join(guesses, ", and "));
        if (std::ranges::find(parts, part) == parts.end()) parts.push_back(std::move(part));
    }
    return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace weft::plan
