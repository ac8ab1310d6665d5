#include "plan/measured.h"

#include <charconv>
#include <cmath>

namespace weft::plan {
namespace {

constexpr int kMostMeasuredRanks = 1024;
// Products of fewer rows than this are held up by the memory: they say nothing of many rows.
constexpr double kManyRows = 32;

double Interpolated(const Measured::Curve& curve, double x) {
    const auto above = curve.lower_bound(x);
    if (above == curve.begin()) return above->second;
    if (above == curve.end()) return std::prev(above)->second;
    const auto below = std::prev(above);
    const double part =
        std::log(x / below->first) / std::log(above->first / below->first);  // 0 to 1
    return below->second * std::pow(above->second / below->second, part);
}

// {"64": "1.5 TFLOP/s", ...}: at least one.
Measured::Curve ReadCurve(const nlohmann::json& json, const std::string& where, Unit unit,
                          ObjectReader& outer) {
    Measured::Curve curve;
    ObjectReader reader(json, where);
    if (json.is_object()) {
        for (const auto& [key, value] : json.items()) {
            int64_t x = 0;
            const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), x);
            const bool number = error == std::errc() && end == key.data() + key.size() && x > 0;
            if (!number) reader.Fail(fmt::format("'{}': expected a whole number above 0", key));
            const auto figure = ParseQuantity(reader.Text(key.c_str()), unit);
            if (!figure.ok()) reader.Fail(fmt::format("{}: {}", key, figure.error().message));
            if (number && figure.ok() && *figure > 0) curve[static_cast<double>(x)] = *figure;
        }
        if (curve.empty()) reader.Fail("expected figures above 0 by rows or bytes");
    }
    if (const Status read = reader.Finish(); !read.ok()) outer.Fail(read.error().message);
    return curve;
}

}  // namespace

std::optional<double> Measured::ProductFlops(DType type, double rows) const {
    const auto found = products.find(type);
    if (found == products.end()) return std::nullopt;
    const Curve& curve = found->second;
    const double most = curve.rbegin()->first;
    if (rows > most && most < kManyRows) return std::nullopt;
    return Interpolated(curve, rows);
}

std::optional<double> Measured::AllReduceSeconds(int tensor_ranks, double bytes) const {
    if (tensor_ranks != ranks || all_reduce.empty()) return std::nullopt;
    const auto& [largest, seconds] = *all_reduce.rbegin();
    if (bytes > largest) return seconds * bytes / largest;
    return Interpolated(all_reduce, bytes);
}

Measured ReadMeasured(const nlohmann::json& json, ObjectReader& outer) {
    Measured measured;
    ObjectReader reader(json, "measured");
    measured.ranks = reader.Count("ranks", 1, 1, kMostMeasuredRanks);
    measured.op = reader.Need("op", Unit::kTime);
    measured.cache = reader.Need("cache", Unit::kRate);
    measured.attention = reader.Need("attention", Unit::kCompute);
    reader.Take("step", Unit::kTime, measured.step);
    reader.Take("sync", Unit::kTime, measured.sync);
    if (Figure hop; reader.Take("hop", Unit::kTime, hop)) measured.hop = hop;
    const nlohmann::json* products = reader.Member("products");
    if (products != nullptr) {
        ObjectReader inner(*products, "measured.products");
        if (products->is_object()) {
            for (const auto& [name, rates] : products->items()) {
                inner.Member(name.c_str());
                const auto type = DTypeOfName(name);
                if (!type) {
                    inner.Fail(fmt::format("'{}' is no type of weights", name));
                    continue;
                }
                measured.products[*type] =
                    ReadCurve(rates, "measured.products." + name, Unit::kCompute, inner);
            }
        }
        if (const Status read = inner.Finish(); !read.ok()) reader.Fail(read.error().message);
    }
    if (const nlohmann::json* sums = reader.Member("all_reduce"); sums != nullptr) {
        measured.all_reduce = ReadCurve(*sums, "measured.all_reduce", Unit::kTime, reader);
    }
    if (const Status read = reader.Finish(); !read.ok()) outer.Fail(read.error().message);
    return measured;
}

}  // namespace weft::plan
