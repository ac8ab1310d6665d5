// Maps names of machines, as people and vendors spell them, to the tables in machines/.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::plan {

// "rtx2080ti" from "NVIDIA GeForce RTX 2080 Ti", "780m" from "radeon-780m": the letters and digits
// in lowercase, without the words that name a maker.
std::string PlainMachineName(std::string_view name);

// The plain name of a processor without its class: "ryzen7950x" from "Ryzen 9 7950X", "i712700k"
// from "core-i7-12700k", "xeonw2465x" from "Xeon w5-2465X".
std::string SeriesName(std::string_view name);

// The entry that `word` names. In this order: the entry itself; the entry with the same plain
// name or the same SeriesName; an entry of the plain name without its memory ("rtx-3060-12gb"),
// if memory_of(entry) is about that many bytes; the only entry whose name is some letters followed
// by `word` ("4090", "7900 XTX"); the only entry that is `word` and a size of memory. Returns "" if
// there is none.
template <typename T, typename MemoryOf>
std::string FindMachineName(std::string_view word, const std::map<std::string, T>& machines,
                            MemoryOf memory_of);

// Whether the name means an Apple computer or its chip: "m3-ultra", "Mac Studio".
bool IsMac(std::string_view word);

// Up to five of `names`: those that begin with `word`, then those with the smallest edit distance.
std::vector<std::string> NearestMachines(std::string_view word, std::span<const std::string> names);

// Processors by their series. `series` has the rows of machines/processors.json. The key of a row
// is a pattern of a processor's plain name: '?' is a letter or digit, '#' a digit that selects the
// number of cores, '%' a 0 or 5, and '*' at the end any remaining text, which does not begin with a
// digit if a number precedes the '*'. Members of a row:
//     about, memory   as in a machine file
//     channels        "2 x 5600": channels of 64 bits and million transfers a second
//     GHz             clock while all cores work
//     FLOP a clock    of a core: 16, 32 with AVX2 or NEON's dot products, 64 with AVX-512 or i8mm
//     cores, small    large and small cores: a number, or numbers by the first '#' digits, of which
//                     the longest match counts. A small core counts as half of a large one.
using SeriesRows = std::map<std::string, nlohmann::json>;

// The members of a machine file for the processor that `word` names: "ryzen-9-7950x",
// "Core i7-12700K", "epyc-9654". If several patterns match, the one with the most letters and
// digits counts. nullopt: no series has the name.
std::optional<nlohmann::json> FindProcessor(std::string_view word, const SeriesRows& series);

// Descriptions of up to five series ("AMD Ryzen 9000, Zen 5"), nearest first, if `word` begins like
// a processor's name ("i5-2500k", "epyc"); else none.
std::vector<std::string> NearestProcessors(std::string_view word, const SeriesRows& series);

// ---- Implementation -----------------------------------------------------------------------------

// Splits "rtx306012gb" into "rtx3060" and 12; nullopt: the name ends with no such size.
std::optional<std::pair<std::string, double>> SplitMemory(const std::string& plain, size_t digits);

template <typename T, typename MemoryOf>
std::string FindMachineName(std::string_view word, const std::map<std::string, T>& machines,
                            MemoryOf memory_of) {
    if (machines.contains(std::string(word))) return std::string(word);
    const std::string plain = PlainMachineName(word);
    if (plain.empty()) return "";
    std::map<std::string, std::string> names;  // by plain name
    for (const auto& [name, machine] : machines) names.emplace(PlainMachineName(name), name);
    const auto same = names.find(plain);
    if (same != names.end()) return same->second;
    const std::string series = SeriesName(word);
    for (const auto& [name, machine] : machines) {
        if (SeriesName(name) == series) return name;
    }
    for (size_t digits = 1; digits <= 3; ++digits) {
        const auto split = SplitMemory(plain, digits);
        const auto found = split ? names.find(split->first) : names.end();
        if (found == names.end()) continue;
        const double share = memory_of(machines.at(found->second)) / (split->second * 0x1p30);
        if (share > 0.85 && share < 1.05) return found->second;
    }
    std::string only;
    for (const auto& [other, name] : names) {
        const size_t letters = other.find_first_of("0123456789");
        const bool ends = other.ends_with(plain) && other.size() - plain.size() <= letters;
        bool sized = false;
        for (size_t digits = 1; digits <= 3; ++digits) {
            const auto split = SplitMemory(other, digits);
            sized = sized || (split && split->first == plain);
        }
        if (!ends && !sized) continue;
        if (!only.empty()) return "";
        only = name;
    }
    return only;
}

}  // namespace weft::plan
