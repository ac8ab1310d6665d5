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

// Limits beyond the figures of any machine. Within them, sums of quotients of figures stay finite,
// and bytes fit 64 bits. written: the unit in files that Weft writes.
struct UnitFacts {
    Unit unit;
    double least, most;
    const char* range;
    double written;
    const char* written_unit;
};
constexpr UnitFacts kFacts[] = {
    {Unit::kBytes, 1e6, 0x1p60, "1 MB to 2^60 bytes", 1e9, " GB"},
    {Unit::kRate, 1e3, 1e18, "0.001 MB/s to 1e6 TB/s", 1e9, " GB/s"},
    {Unit::kCompute, 1e6, 1e21, "0.001 GFLOP/s to 1e6 PFLOP/s", 1e9, " GFLOP/s"},
    {Unit::kTime, 0, 1e9, "0 to 1e9 s", 1e-6, " us"},
    {Unit::kPower, 0, 1e9, "0 to 1e9 W", 1, " W"},
    {Unit::kPrice, 0, 1e12, "0 to 1e12 EUR", 1, " EUR"},
    {Unit::kShare, 1e-6, 1, "0.0001 % to 100 %", 1, ""},
    {Unit::kSpeed, 1e-6, 1e12, "1e-6 to 1e12 tok/s", 1, " tok/s"}};

const UnitFacts& FactsOf(Unit unit) {
    return *std::ranges::find(kFacts, unit, &UnitFacts::unit);
}

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

std::string QuantityText(double value, Unit unit) {
    const UnitFacts& facts = FactsOf(unit);
    return fmt::format("{:.6g}{}", value / facts.written, facts.written_unit);
}

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
                         "'{}' is not a quantity; expected a number and one of the units {}",
                         text.substr(0, 100), UnitNames(unit));
    }
    const double value = number * row->factor;
    const UnitFacts& facts = FactsOf(unit);
    if (value >= facts.least && value <= facts.most) return value;
    return MakeError(ErrorCode::kUsage, "'{}' is out of range; expected {}", text.substr(0, 100),
                     facts.range);
}

ObjectFields::ObjectFields(const nlohmann::json& object, std::string file, std::string path)
    : object_(&object), file_(std::move(file)), path_(std::move(path)) {
    if (!object.is_object()) Fail("expected a JSON object");
}

void ObjectFields::Fail(const std::string& words) {
    if (error_.empty()) error_ = path_.empty() ? words : path_ + ": " + words;
}

const nlohmann::json* ObjectFields::Member(const char* key) {
    if (object_ == nullptr || !object_->is_object()) return nullptr;
    if (std::ranges::find(known_, key) == known_.end()) known_.emplace_back(key);
    const auto found = object_->find(key);
    return found != object_->end() ? &*found : nullptr;
}

std::vector<std::string> ObjectFields::TakeNames() {
    if (object_ == nullptr || !object_->is_object()) return {};
    for (const auto& [name, value] : object_->items()) known_.push_back(name);
    return known_;
}

void ObjectFields::Read(const nlohmann::json& member, const char* key, Unit unit, Figure& figure) {
    std::string is, mark;
    if (member.is_string()) {
        const std::string text = member.get<std::string>();
        const size_t comma = text.find(", "), colon = text.find(": ", comma);
        if (comma == text.npos || colon == text.npos) {
            return Fail(fmt::format("{}: '{}'; {}", key, text.substr(0, 100), kExpectedFigure));
        }
        is = text.substr(0, comma);
        mark = text.substr(comma + 2, colon - comma - 2);
        figure.source = text.substr(colon + 2);
    } else if (!member.is_object()) {
        return Fail(fmt::format("{}: {}", key, kExpectedFigure));
    } else {
        Object(key, true, [&](ObjectFields& inner) {
            inner.Text("is", is);
            inner.Text("mark", mark);
            inner.Text("source", figure.source);
        });
    }
    const auto quantity = ParseQuantity(is, unit);
    if (!quantity.ok()) return Fail(fmt::format("{}.is: {}", key, quantity.error().message));
    figure.value = *quantity;
    const auto* row = std::ranges::find(kMarks, mark, &MarkRow::name);
    if (row == std::end(kMarks)) {
        return Fail(fmt::format("{}.mark: '{}'; expected measured, fitted, data sheet or guessed",
                                key, mark));
    }
    figure.mark = row->mark;
    if (figure.source.empty()) Fail(fmt::format("{}.source: expected where it is from", key));
}

bool ObjectFields::Take(const char* key, Unit unit, Figure& figure) {
    if (object_ == nullptr && !figure.source.empty()) {
        written_[key] = {{"is", QuantityText(figure.value, unit)},
                         {"mark", kMarks[static_cast<size_t>(figure.mark)].name},
                         {"source", figure.source}};
    }
    const nlohmann::json* member = Member(key);
    if (member != nullptr) Read(*member, key, unit, figure);
    return member != nullptr;
}

void ObjectFields::Take(const char* key, Unit unit, std::optional<Figure>& figure) {
    Figure its = figure.value_or(Figure{});
    if (Take(key, unit, its)) figure = its;
}

void ObjectFields::Need(const char* key, Unit unit, Figure& figure) {
    if (Take(key, unit, figure) || object_ == nullptr) return;
    figure.value = 1;
    Fail(fmt::format("{}: missing; {}", key, kExpectedFigure));
}

void ObjectFields::Text(const char* key, std::string& text) {
    if (object_ == nullptr && !text.empty()) written_[key] = text;
    const nlohmann::json* member = Member(key);
    if (member == nullptr) return;
    if (!member->is_string()) return Fail(fmt::format("{}: expected a string", key));
    text = member->get<std::string>();
}

void ObjectFields::Count(const char* key, int& count, int least, int most) {
    if (object_ == nullptr && count > 0) written_[key] = count;
    const nlohmann::json* member = Member(key);
    if (member == nullptr) return;
    const auto value = member->is_number_integer() ? member->get<int64_t>() : int64_t{-1};
    if (value >= least && value <= most) {
        count = static_cast<int>(value);
    } else {
        Fail(fmt::format("{}: expected a whole number from {} to {}", key, least, most));
    }
}

void ObjectFields::Curve(const char* key, Unit unit, std::map<double, double>& curve) {
    if (object_ == nullptr) {
        for (const auto& [x, value] : curve) {
            written_[key][fmt::format("{}", x)] = QuantityText(value, unit);
        }
    }
    Object(key, false, [&](ObjectFields& inner) {
        curve.clear();
        for (const std::string& name : inner.TakeNames()) {
            double x = 0;
            const char* const name_end = name.data() + name.size();
            const auto [end, error] = std::from_chars(name.data(), name_end, x);
            if (error != std::errc() || end != name_end || !(x > 0) || !std::isfinite(x)) {
                return inner.Fail(fmt::format("'{}': expected a number above 0", name));
            }
            std::string text;
            inner.Text(name.c_str(), text);
            const auto figure = ParseQuantity(text, unit);
            if (!figure.ok()) {
                return inner.Fail(fmt::format("{}: {}", name, figure.error().message));
            }
            if (*figure > 0) curve[x] = *figure;
        }
        if (curve.empty()) inner.Fail("expected figures above 0 by rows or bytes");
    });
}

void ObjectFields::Object(const char* key, bool set, const Fields& fields) {
    if (object_ == nullptr) {
        if (!set) return;
        ObjectFields inner;
        fields(inner);
        written_[key] = std::move(inner.written_);
        return;
    }
    const nlohmann::json* member = Member(key);
    if (member == nullptr) return;
    ObjectFields inner(*member, file_, path_.empty() ? key : path_ + "." + key);
    fields(inner);
    if (error_.empty()) error_ = inner.FirstError();
}

std::string ObjectFields::FirstError() const {
    if (!error_.empty()) return error_;
    for (const auto& [key, value] : object_->items()) {
        if (std::ranges::find(known_, key) != known_.end()) continue;
        return fmt::format("{}{}unknown key '{}'; known are {}", path_, path_.empty() ? "" : ": ",
                           key.substr(0, 100), fmt::join(known_, ", "));
    }
    return "";
}

Status ObjectFields::Finish() const {
    const std::string error = FirstError();
    if (error.empty()) return {};
    return MakeError(ErrorCode::kUsage, "{}: {}", file_, error);
}

}  // namespace weft::plan
