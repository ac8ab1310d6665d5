#include "plan/machine_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/check.h"
#include "base/nearest_word.h"

namespace weft::plan {
namespace {

constexpr std::string_view kMakers[] = {"amd",    "ati",      "intel", "nvidia",    "geforce",
                                        "radeon", "instinct", "tesla", "processor", "cpu",
                                        "gpu",    "graphics", "tm",    "r"};
// Words of processors' names that do not identify the series, as in "xeon gold 6248r", "ryzen 7
// pro".
constexpr std::string_view kClasses[] = {"core",     "pro", "platinum", "gold", "silver", "bronze",
                                         "scalable", "gen", "11th",     "12th", "13th",   "14th"};
// Words before a digit that is a class: "ryzen 9 7950x", "core 7 150u", "ultra 7 155h".
constexpr std::string_view kBeforeClass[] = {"ryzen", "ai", "ultra", "core"};
constexpr std::string_view kMacs[] = {"m#",       "m#pro",    "m#max",   "m#ultra", "apple*",
                                      "macbook*", "macmini*", "macpro*", "imac*",   "macstudio*"};
constexpr size_t kMostNearest = 5;

std::vector<std::string> WordsOf(std::string_view name) {
    std::vector<std::string> words(1);
    for (const unsigned char c : name) {
        if (std::isalnum(c) != 0) {
            words.back() += static_cast<char>(std::tolower(c));
        } else if (!words.back().empty()) {
            words.emplace_back();
        }
    }
    std::erase_if(words, [](const std::string& word) {
        return word.empty() || std::ranges::find(kMakers, word) != std::end(kMakers);
    });
    return words;
}

std::string Joined(const std::vector<std::string>& words) {
    std::string joined;
    for (const std::string& word : words) joined += word;
    return joined;
}

bool IsDigit(char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

bool IsLetter(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

// Whether the pattern matches all of `text`. digits: the digits that its '#' match.
bool Matches(std::string_view pattern, std::string_view text, std::string& digits) {
    digits.clear();
    const bool open = pattern.ends_with('*');
    if (open) pattern.remove_suffix(1);
    const bool numbered = !pattern.empty() && !IsLetter(pattern.back());
    if (open && numbered && text.size() > pattern.size() && IsDigit(text[pattern.size()])) {
        return false;
    }
    if (open ? text.size() < pattern.size() : text.size() != pattern.size()) return false;
    for (size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] == '?') continue;
        if (pattern[i] == '%') {
            if (text[i] != '0' && text[i] != '5') return false;
            continue;
        }
        if (pattern[i] != '#') {
            if (pattern[i] != text[i]) return false;
            continue;
        }
        if (!IsDigit(text[i])) return false;
        digits += text[i];
    }
    return true;
}

int CoresIn(const nlohmann::json& cores, std::string digits) {
    if (cores.is_number()) return cores.get<int>();
    while (!cores.contains(digits)) {
        WEFT_CHECK(!digits.empty());
        digits.pop_back();
    }
    return cores.at(digits).get<int>();
}

// The figures of a processor with the cores that `digits` select.
nlohmann::json MachineOf(const nlohmann::json& row, const std::string& digits) {
    const int large = CoresIn(row.at("cores"), digits);
    const int small = row.contains("small") ? CoresIn(row["small"], digits) : 0;
    const double flops = row.at("FLOP a clock"), ghz = row.at("GHz");
    const std::string memory = row.at("channels");  // "2 x 5600, data sheet: AMD"
    const size_t comma = memory.find(',');
    int channels = 0;
    double transfers = 0;
    const char* text = memory.data();
    const auto count = std::from_chars(text, text + comma, channels);
    const auto rate = std::from_chars(count.ptr + 3, text + comma, transfers);
    WEFT_CHECK(count.ec == std::errc() && rate.ec == std::errc() && channels > 0);
    const std::string cores = small > 0 ? fmt::format("{} large and {} small cores", large, small)
                                        : fmt::format("{} cores", large);
    const double gflops = (large + small * 0.5) * flops * ghz;
    return {{"about",
             fmt::format("{}, {}, {} channel{} of {:.0f} MT/s", row.at("about").get<std::string>(),
                         cores, channels, channels == 1 ? "" : "s", transfers)},
            {"pool", "host"},
            {"threads", large + small},
            {"memory", row.at("memory")},
            {"bandwidth",
             fmt::format("{:.6g} GB/s{}", channels * transfers * 0.008, memory.substr(comma))},
            {"compute", fmt::format("{:.0f} GFLOP/s, guessed: {}, {} FLOP a clock, {} GHz", gflops,
                                    cores, flops, ghz)}};
}

}  // namespace

std::string PlainMachineName(std::string_view name) {
    return Joined(WordsOf(name));
}

std::string SeriesName(std::string_view name) {
    const std::vector<std::string> words = WordsOf(name);
    const bool threadripper = std::ranges::find(words, "threadripper") != words.end();
    std::vector<std::string> kept;
    std::string before;
    for (const std::string& word : words) {
        const bool digit = word.size() == 1 && IsDigit(word[0]);
        const bool its_class =
            digit && std::ranges::find(kBeforeClass, before) != std::end(kBeforeClass);
        before = word;
        if (its_class || (threadripper && word == "ryzen")) continue;
        const bool of_xeon = word.size() == 2 && word[0] == 'w' && IsDigit(word[1]);
        kept.push_back(of_xeon ? "w" : word);
    }
    const bool core = kept.size() == 2 && kept[0] == "core" && IsDigit(kept[1][0]);
    std::erase_if(kept, [&](const std::string& word) {
        if (core && word == "core") return false;
        return std::ranges::find(kClasses, word) != std::end(kClasses);
    });
    return Joined(kept);
}

std::optional<std::pair<std::string, double>> SplitMemory(const std::string& plain, size_t digits) {
    if (!plain.ends_with("gb") || plain.size() < digits + 3) return std::nullopt;
    const size_t at = plain.size() - 2 - digits;
    double size = 0;
    const char* end = plain.data() + plain.size() - 2;
    const auto [stop, error] = std::from_chars(plain.data() + at, end, size);
    if (error != std::errc() || stop != end || plain[at] == '0') return std::nullopt;
    return std::pair(plain.substr(0, at), size);
}

bool IsMac(std::string_view word) {
    const std::string plain = PlainMachineName(word);
    std::string digits;
    return std::ranges::any_of(
        kMacs, [&](std::string_view pattern) { return Matches(pattern, plain, digits); });
}

std::vector<std::string> NearestMachines(std::string_view word,
                                         std::span<const std::string> names) {
    std::vector<std::string> nearest(names.begin(), names.end());
    const std::string plain = PlainMachineName(word);
    std::ranges::stable_sort(nearest, {}, [&](const std::string& name) {
        const std::string other = PlainMachineName(name);
        return std::pair(!other.starts_with(plain), EditDistance(plain, other));
    });
    nearest.resize(std::min(nearest.size(), kMostNearest));
    return nearest;
}

std::vector<std::string> NearestProcessors(std::string_view word, const SeriesRows& series) {
    const std::string name = SeriesName(word);
    std::vector<std::pair<size_t, std::string>> rows;
    bool alike = false;
    for (const auto& [pattern, row] : series) {
        const auto letters =
            static_cast<size_t>(std::ranges::find_if_not(pattern, IsLetter) - pattern.begin());
        const bool begins = name.starts_with(std::string_view(pattern).substr(0, letters));
        alike =
            alike || (begins && (letters > 3 || (name.size() > letters && IsDigit(name[letters]))));
        // Digits that the pattern leaves open count as matched.
        std::string filled = pattern;
        if (filled.ends_with('*')) filled.pop_back();
        for (size_t i = 0; i < std::min(filled.size(), name.size()); ++i) {
            if (!IsLetter(filled[i]) && !IsDigit(filled[i])) filled[i] = name[i];
        }
        rows.emplace_back(EditDistance(name, filled) + (begins ? size_t{0} : size_t{100}),
                          row.at("about").get<std::string>());
    }
    if (!alike) return {};
    std::ranges::stable_sort(rows, {}, [](const auto& one) { return one.first; });
    std::vector<std::string> nearest;
    for (const auto& [distance, about] : rows) {
        const bool listed = std::ranges::find(nearest, about) != nearest.end();
        if (!listed && nearest.size() < kMostNearest) nearest.push_back(about);
    }
    return nearest;
}

std::optional<nlohmann::json> FindProcessor(std::string_view word, const SeriesRows& series) {
    const std::string name = SeriesName(word);
    const nlohmann::json* best = nullptr;
    std::string best_digits;
    std::ptrdiff_t most = 0;
    for (const auto& [pattern, row] : series) {
        std::string digits;
        if (!Matches(pattern, name, digits)) continue;
        const std::ptrdiff_t letters = std::ranges::count_if(
            pattern, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
        if (letters <= most) continue;
        most = letters;
        best = &row;
        best_digits = digits;
    }
    if (best == nullptr) return std::nullopt;
    return MachineOf(*best, best_digits);
}

}  // namespace weft::plan
