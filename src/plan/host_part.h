// The processor and memory of a host of GPUs: "+128gb" behind a machine of --machines, or the
// member "host" of a machine file.
//
// If only the memory is given, Weft guesses the rest of the host: two channels of DDR5-5000, of
// which the processor reaches the share kSustained, and 8 cores of 32 FLOP per clock at 4 GHz.
// "+64gb-ddr4" has two channels of DDR4-3200.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/machine.h"

namespace weft::plan {

// The members of a machine file's "host".
void HostFields(ObjectFields& io, HostPart& host);

// "128gb", "64 GiB", "1tb", "64gb-ddr4" and "64gb-ddr5": the size of the memory modules, of which a
// sixteenth is reserved for the system. nullopt: another word.
std::optional<HostPart> ParseHostWord(std::string_view word);

// Gives hosts of one kind this memory, and adds its guessed price. word: as in --machines. Errors:
// kUsage (no host, or one that cannot have it).
Status AddHost(std::span<Machine> hosts, const std::string& word, const HostPart& part);

// The host's processor as a machine. ranks: number of the host's ranks that compute at the same
// time; each gets an equal share of the bandwidth and of the cores.
Machine ProcessorOf(const HostPart& host, int64_t ranks);

// Names what is guessed of the hosts' processors; "": nothing.
std::string HostNote(const ClusterSpec& cluster);

}  // namespace weft::plan
