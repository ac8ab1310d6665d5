#include "plan/measured.h"

#include <cmath>

#include "cluster/frame.h"

namespace weft::plan {
namespace {

using Curve = MeasuredRates::Curve;
using program::OpKind;
using std::nullopt;

constexpr int kMostMeasuredRanks = cluster::kMostRanks, kMostPositions = 1 << 20;
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

struct DTypeNames {
    static constexpr const char* kWhat = "type";
    static std::optional<DType> Parse(const std::string& name) { return DTypeOfName(name); }
    static std::string Text(DType type) { return std::string(Info(type).name); }
};

struct OpNames {
    static constexpr const char* kWhat = "op";
    static std::optional<OpKind> Parse(const std::string& name) {
        for (size_t kind = 0; kind < program::kOpKinds; ++kind) {
            if (Text(static_cast<OpKind>(kind)) == name) return static_cast<OpKind>(kind);
        }
        return std::nullopt;
    }
    static std::string Text(OpKind kind) { return program::OpName(kind); }
};

// needs: cache, attention and op are required unless `rates` has them already.
void RateFields(ObjectFields& io, bool needs, MeasuredRates& rates) {
    const auto figure = [&](const char* key, Unit unit, Figure& value) {
        needs ? io.Need(key, unit, value) : void(io.Take(key, unit, value));
    };
    figure("op", Unit::kTime, rates.op);
    io.Take("rest", Unit::kRate, rates.rest);
    io.Take("step", Unit::kTime, rates.step);
    figure("cache", Unit::kRate, rates.cache);
    io.Take("scores", Unit::kCompute, rates.scores);
    io.Count("positions", rates.positions, 0, kMostPositions);
    figure("attention", Unit::kCompute, rates.attention);
    io.Each<DTypeNames>("kv", rates.kv, [](auto& inner, const char* type, auto& its) {
        inner.Object(type, true, [&](ObjectFields& members) {
            members.Need("cache", Unit::kRate, its.cache);
            members.Need("attention", Unit::kCompute, its.attention);
        });
    });
    const auto flops = [](ObjectFields& inner, const char* type, Curve& curve) {
        inner.Curve(type, Unit::kCompute, curve);
    };
    io.Each<DTypeNames>("products", rates.products, flops);
    io.Each<DTypeNames>("experts", rates.experts, flops);
}

void TrainingFields(ObjectFields& io, TrainingRates& rates) {
    io.Need("update", Unit::kRate, rates.update);
    io.Take("step", Unit::kTime, rates.step);
    io.Each<OpNames>("ops", rates.ops, [](auto& inner, const char* name, Curve& curve) {
        const program::OpRow& row = program::RowOf(*OpNames::Parse(name));
        const bool by_flops = row.Is(program::Trait::kByFlops);
        inner.Curve(name, by_flops ? Unit::kCompute : Unit::kRate, curve);
    });
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

std::optional<double> Measured::SecondsOf(const Curve& curve, const coll::TierGroup& group,
                                          double bytes) const {
    if (group.ranks != ranks || group.hosts != hosts || curve.empty()) return std::nullopt;
    const auto& [largest, seconds] = *curve.rbegin();
    if (bytes > largest) return seconds * bytes / largest;
    return Interpolated(curve, bytes);
}

std::optional<double> Measured::AllReduceSeconds(const coll::TierGroup& group, double bytes) const {
    return SecondsOf(all_reduce, group, bytes);
}
std::optional<double> Measured::AllGatherSeconds(const coll::TierGroup& group, double bytes) const {
    return SecondsOf(all_gather, group, bytes);
}
std::optional<double> Measured::ReduceScatterSeconds(const coll::TierGroup& group,
                                                     double bytes) const {
    return SecondsOf(reduce_scatter, group, bytes);
}

void Measured::ForgetWire() {
    if (hosts == 1) return;
    for (Curve* curve : {&all_reduce, &all_gather, &reduce_scatter}) curve->clear();
}

double AllReduceSeconds(const Measured* tables, const coll::TierGroup& group, double bytes) {
    const auto known = tables != nullptr ? tables->AllReduceSeconds(group, bytes) : nullopt;
    return known ? *known : coll::AllReduceSeconds(group, coll::Algorithm::kAuto, bytes);
}

double AllGatherSeconds(const Measured* tables, const coll::TierGroup& group, double bytes) {
    const auto known = tables != nullptr ? tables->AllGatherSeconds(group, bytes) : nullopt;
    return known ? *known : coll::AllGatherSeconds(group, bytes);
}

double ReduceScatterSeconds(const Measured* tables, const coll::TierGroup& group, double bytes,
                            double value_bytes) {
    const auto known = tables != nullptr ? tables->ReduceScatterSeconds(group, bytes) : nullopt;
    return known ? *known
                 : coll::ReduceScatterSeconds(group, bytes, coll::Algorithm::kAuto, value_bytes);
}

void MeasuredFields(ObjectFields& io, Measured& measured) {
    io.Count("ranks", measured.ranks, 1, kMostMeasuredRanks);
    int cores = measured.cores.value_or(0);
    io.Count("cores", cores, 0, kMostMeasuredRanks);
    if (cores > 0) measured.cores = cores;
    RateFields(io, true, measured);
    const auto alone = [](ObjectFields& inner, auto& rates) { RateFields(inner, false, rates); };
    // Rates that `alone` omits equal the rates of all ranks at once.
    io.Object("alone", measured.alone, alone, MeasuredRates(measured));
    io.Take("hop", Unit::kTime, measured.hop);
    io.Take("sync", Unit::kTime, measured.sync);
    io.Curve("all_reduce", Unit::kTime, measured.all_reduce);
    io.Curve("all_gather", Unit::kTime, measured.all_gather);
    io.Curve("reduce_scatter", Unit::kTime, measured.reduce_scatter);
    io.Each<DTypeNames>(
        "training", measured.training, [](auto& inner, const char* type, auto& its) {
            inner.Object(type, true, [&](ObjectFields& members) { TrainingFields(members, its); });
        });
}

}  // namespace weft::plan
