#include "plan/figure.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace weft::plan {
namespace {

struct UnitRow {
    Unit unit;
    std::string_view name;
    double factor;
};
constexpr UnitRow kUnits[] = {{Unit::kBytes, "B", 1},
                              {Unit::kBytes, "KB", 1e3},
                              {Unit::kBytes, "MB", 1e6},
                              {Unit::kBytes, "GB", 1e9},
                              {Unit::kBytes, "TB", 1e12},
                              {Unit::kBytes, "KiB", 0x1p10},
                              {Unit::kBytes, "MiB", 0x1p20},
                              {Unit::kBytes, "GiB", 0x1p30},
                              {Unit::kBytes, "TiB", 0x1p40},
                              {Unit::kRate, "MB/s", 1e6},
                              {Unit::kRate, "GB/s", 1e9},
                              {Unit::kRate, "TB/s", 1e12},
                              {Unit::kRate, "MiB/s", 0x1p20},
                              {Unit::kRate, "GiB/s", 0x1p30},
                              {Unit::kRate, "Mbit/s", 1e6 / 8},
                              {Unit::kRate, "Gbit/s", 1e9 / 8},
                              {Unit::kCompute, "GFLOP/s", 1e9},
                              {Unit::kCompute, "TFLOP/s", 1e12},
                              {Unit::kCompute, "PFLOP/s", 1e15},
                              {Unit::kTime, "ns", 1e-9},
                              {Unit::kTime, "us", 1e-6},
                              {Unit::kTime, "ms", 1e-3},
                              {Unit::kTime, "s", 1},
                              {Unit::kTime, "min", 60},
                              {Unit::kTime, "m", 60},
                              {Unit::kTime, "h", 3600},
                              {Unit::kPower, "W", 1},
                              {Unit::kPrice, "EUR", 1},
                              {Unit::kSpeed, "tok/s", 1},
                              {Unit::kSpeed, "t/s", 1},
                              {Unit::kShare, "%", 0.01},
                              {Unit::kShare, "", 1}};

// Limits outside of any machine: sums of quotients of figures stay finite, and bytes fit 64 bits.
struct UnitRange {
    Unit unit;
    double least, most;
    const char* words;
};
constexpr UnitRange kRanges[] = {{Unit::kBytes, 1e6, 0x1p60, "1 MB to 2^60 bytes"},
                                 {Unit::kRate, 1e3, 1e18, "0.001 MB/s to 1e6 TB/s"},
                                 {Unit::kCompute, 1e6, 1e21, "0.001 GFLOP/s to 1e6 PFLOP/s"},
                                 {Unit::kTime, 0, 1e9, "0 to 1e9 s"},
                                 {Unit::kPower, 0, 1e9, "0 to 1e9 W"},
                                 {Unit::kPrice, 0, 1e12, "0 to 1e12 EUR"},
                                 {Unit::kShare, 1e-6, 1, "0.0001 % to 100 %"},
                                 {Unit::kSpeed, 1e-6, 1e12, "1e-6 to 1e12 tok/s"}};

constexpr const char* kExpectedFigure =
    "expected \"QUANTITY, MARK: SOURCE\", such as \"24 GB, data sheet: the vendor's page\"";

std::string UnitNames(Unit unit) {
    std::string names;
    for (const UnitRow& row : kUnits) {
        if (row.unit != unit || row.name.empty()) continue;
        names += (names.empty() ? "" : ", ") + std::string(row.name);
    }
    return names;
}

struct MarkRow {
    Mark mark;
    const char* name;
    double spread;
};
constexpr MarkRow kMarks[] = {{Mark::kMeasured, "measured", 0.03},
                              {Mark::kFitted, "fitted", 0.07},
                              {Mark::kDataSheet, "data sheet", 0.10},
                              {Mark::kGuessed, "guessed", 0.30}};

}  // namespace

double Figure::spread() const {
    return kMarks[static_cast<size_t>(mark)].spread;
}

Result<double> ParseQuantity(std::string_view text, Unit unit) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    std::string_view name(end, static_cast<size_t>(text.data() + text.size() - end));
    while (name.starts_with(' ')) name.remove_prefix(1);
    const auto row = std::ranges::find_if(
        kUnits, [&](const UnitRow& r) { return r.unit == unit && r.name == name; });
    if (unit == Unit::kPrice && (name == "USD" || name == "$")) {
        return MakeError(ErrorCode::kUsage,
                         "'{}': prices are in EUR, and no rate of exchange is known; expected the "
                         "price in EUR, such as 8000EUR",
                         text.substr(0, 100));
    }
    const bool counts = error == std::errc() && std::isfinite(number);
    if (!counts || row == std::end(kUnits)) {
        return MakeError(ErrorCode::kUsage,
                         "'{}' is no quantity; expected a number and one of the units {}",
                         text.substr(0, 100), UnitNames(unit));
    }
    const double value = number * row->factor;
    const UnitRange& range = *std::ranges::find(kRanges, unit, &UnitRange::unit);
    if (value >= range.least && value <= range.most) return value;
    return MakeError(ErrorCode::kUsage, "'{}' is out of range; expected {}", text.substr(0, 100),
                     range.words);
}

ObjectReader::ObjectReader(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) Fail("expected a JSON object");
}

void ObjectReader::Fail(std::string words) {
    if (error_.empty()) error_ = std::move(words);
}

const nlohmann::json* ObjectReader::Member(const char* key) {
    if (std::ranges::find(known_, key) == known_.end()) known_.emplace_back(key);
    const auto found = object_.find(key);
    return object_.is_object() && found != object_.end() ? &*found : nullptr;
}

Figure ObjectReader::Read(const nlohmann::json& member, const char* key, Unit unit) {
    Figure figure;
    std::string is, mark;
    if (member.is_string()) {
        const std::string text = member.get<std::string>();
        const size_t comma = text.find(", "), colon = text.find(": ", comma);
        if (comma == text.npos || colon == text.npos) {
            Fail(fmt::format("{}: '{}'; {}", key, text.substr(0, 100), kExpectedFigure));
            return figure;
        }
        is = text.substr(0, comma);
        mark = text.substr(comma + 2, colon - comma - 2);
        figure.source = text.substr(colon + 2);
    } else if (!member.is_object()) {
        Fail(fmt::format("{}: {}", key, kExpectedFigure));
        return figure;
    } else {
        ObjectReader inner(member, "");
        is = inner.Text("is");
        mark = inner.Text("mark");
        figure.source = inner.Text("source");
        if (const Status read = inner.Finish(); !read.ok()) {
            Fail(fmt::format("{}: {}", key, read.error().message));
            return figure;
        }
    }
    const auto quantity = ParseQuantity(is, unit);
    if (!quantity.ok()) {
        Fail(fmt::format("{}.is: {}", key, quantity.error().message));
        return figure;
    }
    figure.value = *quantity;
    const auto row = std::ranges::find_if(kMarks, [&](const MarkRow& r) { return mark == r.name; });
    if (row == std::end(kMarks)) {
        Fail(fmt::format("{}.mark: '{}'; expected measured, fitted, data sheet or guessed", key,
                         mark));
    } else {
        figure.mark = row->mark;
    }
    if (figure.source.empty()) Fail(fmt::format("{}.source: expected where it is from", key));
    return figure;
}

bool ObjectReader::Take(const char* key, Unit unit, Figure& figure) {
    const nlohmann::json* member = Member(key);
    if (member != nullptr) figure = Read(*member, key, unit);
    return member != nullptr;
}

Figure ObjectReader::Need(const char* key, Unit unit) {
    Figure figure;
    if (!Take(key, unit, figure)) {
        figure.value = 1;
        Fail(fmt::format("{}: missing; {}", key, kExpectedFigure));
    }
    return figure;
}

std::string ObjectReader::Text(const char* key, std::string fallback) {
    const nlohmann::json* member = Member(key);
    if (member == nullptr) return fallback;
    if (member->is_string()) return member->get<std::string>();
    Fail(fmt::format("{}: expected a string", key));
    return fallback;
}

int ObjectReader::Count(const char* key, int fallback, int least, int most) {
    const nlohmann::json* member = Member(key);
    if (member == nullptr) return fallback;
    if (member->is_number_integer()) {
        const auto value = member->get<int64_t>();
        if (value >= least && value <= most) return static_cast<int>(value);
    }
    Fail(fmt::format("{}: expected a whole number from {} to {}", key, least, most));
    return fallback;
}

Status ObjectReader::Finish() const {
    std::string wrong = error_;
    for (auto member = object_.begin(); wrong.empty() && member != object_.end(); ++member) {
        if (std::ranges::find(known_, member.key()) != known_.end()) continue;
        wrong = fmt::format("unknown key '{}'; known are {}", member.key().substr(0, 100),
                            fmt::join(known_, ", "));
    }
    if (wrong.empty()) return {};
    return MakeError(ErrorCode::kUsage, "{}{}{}", where_, where_.empty() ? "" : ": ", wrong);
}

}  // namespace weft::plan
