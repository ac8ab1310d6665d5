#include "plan/measured.h"

#include <charconv>
#include <cmath>

namespace weft::plan {
namespace {

using Curve = MeasuredRates::Curve;
using program::OpKind;

constexpr int kMostMeasuredRanks = 1024, kMostPositions = 1 << 20;
// Products of fewer rows are limited by memory, so they do not show the rate of many rows.
constexpr double kManyRows = 32;

double Interpolated(const Curve& curve, double x) {
    const auto above = curve.lower_bound(x);
    if (above == curve.begin()) return above->second;
    if (above == curve.end()) return std::prev(above)->second;
    const auto below = std::prev(above);
    const double part =
        std::log(x / below->first) / std::log(above->first / below->first);  // 0 to 1
    return below->second * std::pow(above->second / below->second, part);
}

std::optional<double> FlopsOf(const std::map<DType, Curve>& types, DType type, double rows) {
    const auto found = types.find(type);
    if (found == types.end()) return std::nullopt;
    const Curve& curve = found->second;
    const double most = curve.rbegin()->first;
    if (rows > most && most < kManyRows) return std::nullopt;
    return Interpolated(curve, rows);
}

std::optional<double> SecondsOf(const Curve& curve, bool measured, double bytes) {
    if (!measured || curve.empty()) return std::nullopt;
    const auto& [largest, seconds] = *curve.rbegin();
    if (bytes > largest) return seconds * bytes / largest;
    return Interpolated(curve, bytes);
}

// {"64": "1.5 TFLOP/s", ...}: at least one entry.
Curve ReadCurve(const nlohmann::json& json, const std::string& where, Unit unit,
                ObjectReader& outer) {
    Curve curve;
    ObjectReader reader(json, where);
    if (json.is_object()) {
        for (const auto& [key, value] : json.items()) {
            double x = 0;
            const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), x);
            const bool number =
                error == std::errc() && end == key.data() + key.size() && x > 0 && std::isfinite(x);
            if (!number) reader.Fail(fmt::format("'{}': expected a number above 0", key));
            const auto figure = ParseQuantity(reader.Text(key.c_str()), unit);
            if (!figure.ok()) reader.Fail(fmt::format("{}: {}", key, figure.error().message));
            if (number && figure.ok() && *figure > 0) curve[x] = *figure;
        }
        if (curve.empty()) reader.Fail("expected figures above 0 by rows or bytes");
    }
    if (const Status read = reader.Finish(); !read.ok()) outer.Fail(read.error().message);
    return curve;
}

// Reads an object's members whose keys `find` knows: read(found, value, where, reader).
template <typename Find, typename Read>
void ReadMembers(ObjectReader& outer, const char* key, const char* what, const Find& find,
                 const Read& read) {
    const nlohmann::json* member = outer.Member(key);
    if (member == nullptr) return;
    const std::string where = outer.where() + "." + key;
    ObjectReader reader(*member, where);
    if (member->is_object()) {
        for (const auto& [name, value] : member->items()) {
            reader.Member(name.c_str());
            const auto found = find(name);
            if (found) {
                read(*found, value, where + "." + name, reader);
            } else {
                reader.Fail(fmt::format("'{}' is no {}", name, what));
            }
        }
    }
    if (const Status done = reader.Finish(); !done.ok()) outer.Fail(done.error().message);
}

std::optional<OpKind> OpKindOfName(const std::string& name) {
    for (size_t kind = 0; kind < program::kOpKinds; ++kind) {
        const auto found = static_cast<OpKind>(kind);
        if (name == program::OpName(found)) return found;
    }
    return std::nullopt;
}

// needs: cache, attention and op are required unless `rates` has them already.
void ReadRates(ObjectReader& reader, bool needs, MeasuredRates& rates) {
    const auto take = [&](const char* key, Unit unit, Figure& figure) {
        if (needs) figure = reader.Need(key, unit);
        if (!needs) reader.Take(key, unit, figure);
    };
    take("op", Unit::kTime, rates.op);
    take("cache", Unit::kRate, rates.cache);
    take("attention", Unit::kCompute, rates.attention);
    reader.Take("step", Unit::kTime, rates.step);
    if (Figure rest; reader.Take("rest", Unit::kRate, rest)) rates.rest = rest;
    if (Figure scores; reader.Take("scores", Unit::kCompute, scores)) rates.scores = scores;
    rates.positions = reader.Count("positions", rates.positions, 0, kMostPositions);
    const auto read_types = [&](const char* key, std::map<DType, Curve>& types) {
        ReadMembers(reader, key, "type of weights", DTypeOfName,
                    [&](DType type, const auto& json, const std::string& where, auto& inner) {
                        types[type] = ReadCurve(json, where, Unit::kCompute, inner);
                    });
    };
    read_types("products", rates.products);
    read_types("experts", rates.experts);
    ReadMembers(reader, "kv", "type of a KV cache", DTypeOfName,
                [&](DType type, const auto& json, const std::string& where, auto& inner) {
                    ObjectReader its(json, where);
                    rates.kv[type] = {its.Need("cache", Unit::kRate),
                                      its.Need("attention", Unit::kCompute)};
                    if (const Status done = its.Finish(); !done.ok()) {
                        inner.Fail(done.error().message);
                    }
                });
}

TrainingRates ReadTraining(const nlohmann::json& json, const std::string& where,
                           ObjectReader& outer) {
    TrainingRates rates;
    ObjectReader reader(json, where);
    rates.update = reader.Need("update", Unit::kRate);
    reader.Take("step", Unit::kTime, rates.step);
    ReadMembers(reader, "ops", "op", OpKindOfName,
                [&](OpKind kind, const auto& curve, const std::string& at, auto& inner) {
                    const Unit unit = program::RowOf(kind).Is(program::Trait::kByFlops)
                                          ? Unit::kCompute
                                          : Unit::kRate;
                    rates.ops[kind] = ReadCurve(curve, at, unit, inner);
                });
    if (const Status read = reader.Finish(); !read.ok()) outer.Fail(read.error().message);
    return rates;
}

}  // namespace

std::optional<double> MeasuredRates::ProductFlops(DType type, double rows) const {
    return FlopsOf(products, type, rows);
}

std::optional<double> MeasuredRates::ExpertFlops(DType type, double rows) const {
    const auto flops = FlopsOf(experts, type, rows);
    return flops ? flops : ProductFlops(type, rows);
}

double MeasuredRates::CacheRate(DType type) const {
    const auto found = kv.find(type);
    return found == kv.end() ? cache.value : found->second.cache.value;
}

double MeasuredRates::AttentionFlops(DType type) const {
    const auto found = kv.find(type);
    return found == kv.end() ? attention.value : found->second.attention.value;
}

std::optional<double> TrainingRates::Rate(OpKind kind, double rows) const {
    const auto found = ops.find(kind);
    if (found == ops.end()) return std::nullopt;
    return Interpolated(found->second, rows);
}

std::optional<double> Measured::AllReduceSeconds(int of_ranks, double bytes) const {
    return SecondsOf(all_reduce, of_ranks == ranks, bytes);
}
std::optional<double> Measured::AllGatherSeconds(int of_ranks, double bytes) const {
    return SecondsOf(all_gather, of_ranks == ranks, bytes);
}
std::optional<double> Measured::ReduceScatterSeconds(int of_ranks, double bytes) const {
    return SecondsOf(reduce_scatter, of_ranks == ranks, bytes);
}

double Measured::Turns(int of_ranks, double rows) const {
    return of_ranks == ranks && !turns.empty() ? 1 / Interpolated(turns, rows) : 1;
}

Measured ReadMeasured(const nlohmann::json& json, ObjectReader& outer) {
    Measured measured;
    ObjectReader reader(json, "measured");
    measured.ranks = reader.Count("ranks", 1, 1, kMostMeasuredRanks);
    const int cores = reader.Count("cores", 0, 0, kMostMeasuredRanks);
    if (cores > 0) measured.cores = cores;
    ReadRates(reader, true, measured);
    reader.Take("sync", Unit::kTime, measured.sync);
    if (Figure hop; reader.Take("hop", Unit::kTime, hop)) measured.hop = hop;
    if (const nlohmann::json* alone = reader.Member("alone"); alone != nullptr) {
        ObjectReader inner(*alone, "measured.alone");
        // Rates that are left out are those of all ranks at once.
        MeasuredRates& rates = measured.alone.emplace(measured);
        ReadRates(inner, false, rates);
        if (const Status read = inner.Finish(); !read.ok()) reader.Fail(read.error().message);
    }
    for (auto [key, curve] : {std::pair("all_reduce", &measured.all_reduce),
                              std::pair("all_gather", &measured.all_gather),
                              std::pair("reduce_scatter", &measured.reduce_scatter)}) {
        const nlohmann::json* member = reader.Member(key);
        if (member == nullptr) continue;
        *curve = ReadCurve(*member, fmt::format("measured.{}", key), Unit::kTime, reader);
    }
    if (const nlohmann::json* turns = reader.Member("turns"); turns != nullptr) {
        measured.turns = ReadCurve(*turns, "measured.turns", Unit::kShare, reader);
    }
    ReadMembers(reader, "training", "type", DTypeOfName,
                [&](DType type, const auto& value, const std::string& where, auto& inner) {
                    measured.training[type] = ReadTraining(value, where, inner);
                });
    if (const Status read = reader.Finish(); !read.ok()) outer.Fail(read.error().message);
    return measured;
}

}  // namespace weft::plan
