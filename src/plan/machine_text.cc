// Writes the text of a machine file.
#include <fmt/format.h>

#include "plan/measure.h"

namespace weft::plan {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string QuantityText(double value, Unit unit) {
    switch (unit) {
        case Unit::kBytes: return fmt::format("{:.6g} GB", value * 1e-9);
        case Unit::kRate: return fmt::format("{:.6g} GB/s", value * 1e-9);
        case Unit::kCompute: return fmt::format("{:.6g} GFLOP/s", value * 1e-9);
        case Unit::kTime: return fmt::format("{:.6g} us", value * 1e6);
        case Unit::kPower: return fmt::format("{:.4g} W", value);
        case Unit::kPrice: return fmt::format("{:.6g} EUR", value);
        case Unit::kShare: return fmt::format("{:.6g}", value);
        case Unit::kSpeed: return fmt::format("{:.6g} tok/s", value);
    }
    return "";
}

OrderedJson FigureJson(const Figure& figure, Unit unit) {
    return {
        {"is", QuantityText(figure.value, unit)}, {"mark", "measured"}, {"source", figure.source}};
}

OrderedJson LinkJson(const Figure& bandwidth, const Figure& latency) {
    return {{"bandwidth", FigureJson(bandwidth, Unit::kRate)},
            {"latency", FigureJson(latency, Unit::kTime)}};
}

OrderedJson CurveJson(const Measured::Curve& curve, Unit unit) {
    OrderedJson json;
    for (const auto& [x, value] : curve) json[fmt::format("{}", x)] = QuantityText(value, unit);
    return json;
}

OrderedJson CurvesJson(const std::map<DType, Measured::Curve>& types) {
    OrderedJson json = OrderedJson::object();
    for (const auto& [type, curve] : types) {
        json[std::string(Info(type).name)] = CurveJson(curve, Unit::kCompute);
    }
    return json;
}

OrderedJson RatesJson(const MeasuredRates& rates) {
    OrderedJson json = {{"op", FigureJson(rates.op, Unit::kTime)}};
    if (rates.rest) json["rest"] = FigureJson(*rates.rest, Unit::kRate);
    json["step"] = FigureJson(rates.step, Unit::kTime);
    json["cache"] = FigureJson(rates.cache, Unit::kRate);
    if (rates.scores) json["scores"] = FigureJson(*rates.scores, Unit::kCompute);
    if (rates.positions > 0) json["positions"] = rates.positions;
    json["attention"] = FigureJson(rates.attention, Unit::kCompute);
    for (const auto& [type, its] : rates.kv) {
        json["kv"][std::string(Info(type).name)] = {
            {"cache", FigureJson(its.cache, Unit::kRate)},
            {"attention", FigureJson(its.attention, Unit::kCompute)}};
    }
    json["products"] = CurvesJson(rates.products);
    if (!rates.experts.empty()) json["experts"] = CurvesJson(rates.experts);
    return json;
}

OrderedJson TrainingJson(const TrainingRates& rates) {
    OrderedJson ops = OrderedJson::object();
    for (const auto& [kind, curve] : rates.ops) {
        ops[program::OpName(kind)] =
            CurveJson(curve, program::RowOf(kind).Is(program::Trait::kByFlops) ? Unit::kCompute
                                                                               : Unit::kRate);
    }
    return {{"update", FigureJson(rates.update, Unit::kRate)},
            {"step", FigureJson(rates.step, Unit::kTime)},
            {"ops", std::move(ops)}};
}

OrderedJson MeasuredJson(const Measured& measured) {
    OrderedJson json = {{"ranks", measured.ranks}};
    if (measured.cores) json["cores"] = *measured.cores;
    json.update(RatesJson(measured));
    if (measured.alone) json["alone"] = RatesJson(*measured.alone);
    if (measured.hop) json["hop"] = FigureJson(*measured.hop, Unit::kTime);
    if (!measured.turns.empty()) json["turns"] = CurveJson(measured.turns, Unit::kShare);
    if (!measured.all_reduce.empty()) json["sync"] = FigureJson(measured.sync, Unit::kTime);
    for (const auto& [key, curve] : {std::pair("all_reduce", &measured.all_reduce),
                                     std::pair("all_gather", &measured.all_gather),
                                     std::pair("reduce_scatter", &measured.reduce_scatter)}) {
        if (!curve->empty()) json[key] = CurveJson(*curve, Unit::kTime);
    }
    for (const auto& [type, rates] : measured.training) {
        json["training"][std::string(Info(type).name)] = TrainingJson(rates);
    }
    return json;
}

}  // namespace

std::string MachineFileText(const Machine& machine) {
    OrderedJson json = {{"about", machine.about}, {"devices", machine.devices}};
    json["memory"] = FigureJson(machine.memory, Unit::kBytes);
    json["pool"] = PoolText(machine.pool);
    json["threads"] = machine.threads;
    json["bandwidth"] = FigureJson(machine.bandwidth, Unit::kRate);
    json["compute"] = FigureJson(machine.compute, Unit::kCompute);
    if (machine.within) {
        const LinkTier& tier = *machine.within;
        OrderedJson host = {{"ranks", tier.ranks}};
        host.update(LinkJson(tier.bandwidth, tier.latency));
        json["tiers"] = {{"host", std::move(host)}};
    }
    if (machine.own_wire) {
        OrderedJson wire = {{"about", machine.own_wire->about}};
        wire.update(LinkJson(machine.own_wire->bandwidth, machine.own_wire->latency));
        json["wire"] = std::move(wire);
    }
    if (machine.watts_idle) json["watts_idle"] = FigureJson(*machine.watts_idle, Unit::kPower);
    if (machine.watts_busy) json["watts_busy"] = FigureJson(*machine.watts_busy, Unit::kPower);
    if (machine.measured) json["measured"] = MeasuredJson(*machine.measured);
    return json.dump(2) + "\n";
}

}  // namespace weft::plan
