// Parsers for text from kernels and tools. The parsers accept any bytes and skip malformed parts
// without an error. A returned view points into the argument.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace weft::doctor {

// The words of each line that has words.
std::vector<std::vector<std::string_view>> WordLines(std::string_view text);

// The whole text, without surrounding blanks, as a number.
std::optional<int64_t> Integer(std::string_view text, int base = 10);
std::optional<double> Number(std::string_view text);
// The number at the start of the text: "8.0 GT/s PCIe" -> 8.
std::optional<double> LeadingNumber(std::string_view text);
// The number after `key`: NumberAfter("mtu 1500 qdisc", "mtu ") -> 1500.
std::optional<double> NumberAfter(std::string_view text, std::string_view key);
// The text after `key` up to the end of its line or any of `ends`, trimmed; "": no key.
std::string_view After(std::string_view text, std::string_view key, std::string_view ends = "");
bool Contains(std::string_view text, std::string_view part);
// Whether any of `parts`, which are separated by '|', is in the text.
bool ContainsAny(std::string_view text, std::string_view parts);
// Whether the word is in `list`, whose words are separated by blanks.
bool IsOneOf(std::string_view word, std::string_view list);
// Whether the text begins with a word of `list`.
bool BeginsWithOneOf(std::string_view text, std::string_view list);
// Whether the text has 1 to `most` digits (in base 16, small ones) and nothing else.
bool AreDigits(std::string_view text, size_t most, int base = 10);
// A word without brackets, quotes and punctuation at its ends: "(timeout)," -> "timeout".
std::string_view Bare(std::string_view word);
std::string WithoutQuotes(std::string_view text);
// The last part of a path, trimmed.
std::string BaseName(std::string_view path);

// Rejects, at compile time, a view into a temporary string.
void WordLines(Ending auto&& text) = delete;
void Bare(Ending auto&& word) = delete;
void After(Ending auto&& text, std::string_view key, std::string_view ends = "") = delete;

// The first three numbers of "6.18.4-arch1-1" or "7.1.1"; missing ones are 0.
struct Version {
    int64_t part[3] = {0, 0, 0};
    auto operator<=>(const Version&) const = default;
};
std::optional<Version> ParseVersion(std::string_view text);

// The first run of exactly eight digits that is a date of this century: "20251125-1",
// "20240318.git3b128b60-0ubuntu2.9".
std::optional<int64_t> DateIn(std::string_view text);

// Valid UTF-8 for a terminal and for JSON. Replaces control, direction, invisible and unassigned
// characters by '?'.
std::string Printable(std::string_view text);

// "1.0 GB/s"; gigabytes of 10^9.
std::string RateText(double gigabytes_per_second);
// "64.0 GiB".
std::string SizeText(double bytes);

}  // namespace weft::doctor
