#include "plan/train_time.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace weft::plan {
namespace {

using program::Op;
using program::OpCost;
using program::OpKind;
using program::Program;
using program::Trait;

constexpr TrainSecondsRow kTrainRows[] = {
    {"products", &TrainSeconds::products},   {"attention", &TrainSeconds::attention},
    {"memory", &TrainSeconds::memory},       {"launch", &TrainSeconds::launch},
    {"tensor syncs", &TrainSeconds::tensor}, {"shares", &TrainSeconds::shares},
    {"hops", &TrainSeconds::hops},           {"bubble", &TrainSeconds::bubble},
    {"optimizer", &TrainSeconds::update},    {"stragglers", &TrainSeconds::stragglers}};

// The plain product that an expert's product, or a product of the loss, corresponds to.
OpKind PlainKind(const Op& op) {
    if (op.Is(Trait::kProduct)) return OpKind::kMatMul;
    if (op.Is(Trait::kProductGradInput)) return OpKind::kMatMulGradInput;
    return op.Is(Trait::kProductGradWeight) ? OpKind::kMatMulGradWeight : op.kind();
}

double Bytes(const OpCost& cost) {
    return static_cast<double>(cost.read_bytes + cost.written_bytes);
}

class OpTimer {
  public:
    OpTimer(const Program& list, const TrainPlace& place) : list_(list), place_(place) {
        for (const Op& op : list.ops) {
            if (!op.Is(Trait::kRouter)) continue;
            const program::Shape &ids = list.value(op.outputs[0]).shape,
                                 &scores = list.value(op.inputs[0]).shape;
            expert_share_ = static_cast<double>(ids[ids.rank - 1]) /
                            static_cast<double>(scores[scores.rank - 1]);
        }
    }

    void Add(const Op& op, const OpCost& cost, OpsSeconds& sum) {
        if (op.Is(Trait::kMessage)) return;
        if (op.Is(Trait::kTransfer)) {
            sum.all.tensor += WireSeconds(op, static_cast<double>(cost.wire_bytes));
            return;
        }
        ++ops_;
        sum.flops += cost.flops;
        if (AddMeasured(op, cost, sum)) return;
        if (op.Is(Trait::kAttention)) return AddAttention(cost, sum);
        const bool product = op.Is(Trait::kAnyProduct);
        (product ? sum.all.products : sum.all.memory) +=
            product ? ProductSeconds(op, cost) : Bytes(cost) / place_.device.memory;
    }

    double LaunchSeconds() const { return ops_ * place_.device.op_s; }

  private:
    // Uses the machine's tables; false: they do not have the op.
    bool AddMeasured(const Op& op, const OpCost& cost, OpsSeconds& sum) const {
        if (place_.rates == nullptr) return false;
        const OpKind kind = op.kind(), plain = PlainKind(op);
        const bool attention = op.Is(Trait::kAttention);
        const auto sequence = static_cast<double>(place_.sequence);
        const double all = sequence * static_cast<double>(place_.micro_batch);
        const double rows = plain != kind ? std::max(1.0, all * expert_share_) : all;
        auto rate = place_.rates->Rate(kind, attention ? sequence : rows);
        if (!rate) rate = place_.rates->Rate(plain, rows);
        if (!rate) return false;
        const double seconds = (op.Is(Trait::kByFlops) ? cost.flops : Bytes(cost)) / *rate;
        (attention                ? sum.all.attention
         : op.Is(Trait::kByFlops) ? sum.all.products
                                  : sum.all.memory) += seconds;
        return true;
    }

    double WireSeconds(const Op& op, double bytes) const {
        const coll::TierGroup& group = place_.tensor;
        if (group.ranks < 2) return 0;
        if (op.Is(Trait::kAllReduce)) return place_.collectives.AllReduce(group, bytes);
        if (!op.Is(Trait::kReduceScatter)) return place_.collectives.Gather(group, bytes);
        const auto value_bytes = static_cast<double>(RowBytes(list_.value(op.inputs[0]).dtype, 1));
        return place_.collectives.ReduceScatter(group, bytes, value_bytes);
    }

    // Number of outputs; for a loss's product, the number of logits.
    double OwnOutputs(const Op& op) const {
        const double rows = static_cast<double>(place_.sequence * place_.micro_batch);
        if (op.Is(Trait::kLogits)) {
            return rows * static_cast<double>(list_.value(program::WeightOf(op)).shape[0]);
        }
        const auto elements =
            list_.value(op.outputs[0]).shape.Elements(std::llround(rows), std::llround(rows));
        return static_cast<double>(std::max<int64_t>(elements, 1));
    }

    double ProductSeconds(const Op& op, const OpCost& cost) const {
        const double bytes_s = Bytes(cost) / place_.device.memory;
        if (cost.flops <= 0) return bytes_s;
        const double outputs = OwnOutputs(op);
        double summed = cost.flops / (2 * outputs);
        if (op.Is(Trait::kLogits) && op.Is(Trait::kProductGradWeight)) summed /= 3;
        const double tiled =
            TiledSeconds(cost.flops, outputs, place_.device.products, place_.device.in_flight);
        return std::max(tiled * (1 + kEdge / std::max(summed, 1.0)), bytes_s);
    }

    void AddAttention(const OpCost& cost, OpsSeconds& sum) const {
        const double slower = 1 + kShortSequence / static_cast<double>(place_.sequence);
        sum.all.attention += std::max(cost.flops / place_.device.attention * slower,
                                      Bytes(cost) / place_.device.memory);
    }

    const Program& list_;
    const TrainPlace& place_;
    double ops_ = 0;
    double expert_share_ = 1;  // share of all rows that an expert has
};

}  // namespace

DeviceRates RatesOf(const Machine& machine) {
    const WeftRates& weft = RatesOfKind(machine);
    const double peak = machine.compute.value;
    // A measured or fitted figure already is the rate of products.
    const Mark mark = machine.compute.mark;
    const bool reached = mark == Mark::kMeasured || mark == Mark::kFitted;
    const double tiles = reached ? 1 : weft.tiles;
    DeviceRates rates;
    rates.products = peak * (machine.products ? machine.products->value : tiles);
    rates.attention = machine.attention ? peak * machine.attention->value
                                        : rates.products * weft.attention / weft.tiles;
    rates.memory = machine.sustained_bytes_per_s() * (machine.is_processor() ? 1 : weft.weights);
    rates.in_flight = OutputsInFlight(machine);
    rates.op_s = machine.is_processor() ? 0 : weft.op_s;
    rates.room = machine.memory.value;
    return rates;
}

const TrainingRates* MeasuredTraining(const Machine& machine, DType dtype) {
    if (!machine.measured) return nullptr;
    const auto found = machine.measured->training.find(dtype);
    return found == machine.measured->training.end() ? nullptr : &found->second;
}

std::span<const TrainSecondsRow> TrainSecondsRows() {
    return kTrainRows;
}

double TrainSeconds::total() const {
    double total = 0;
    for (const TrainSecondsRow& row : kTrainRows) total += this->*row.seconds;
    return total;
}

TrainSeconds& TrainSeconds::operator+=(const TrainSeconds& other) {
    for (const TrainSecondsRow& row : kTrainRows) this->*row.seconds += other.*row.seconds;
    return *this;
}

TrainSeconds TrainSeconds::operator*(double factor) const {
    TrainSeconds scaled = *this;
    for (const TrainSecondsRow& row : kTrainRows) scaled.*row.seconds *= factor;
    return scaled;
}

double Collectives::AllReduce(const coll::TierGroup& group, double bytes) const {
    const auto seconds = Known(&Measured::AllReduceSeconds, group, bytes);
    return seconds ? *seconds : coll::AllReduceSeconds(group, coll::Algorithm::kAuto, bytes);
}

double Collectives::Gather(const coll::TierGroup& group, double bytes) const {
    const auto seconds = Known(&Measured::AllGatherSeconds, group, bytes);
    return seconds ? *seconds : coll::AllGatherSeconds(group, bytes);
}

double Collectives::ReduceScatter(const coll::TierGroup& group, double bytes,
                                  double value_bytes) const {
    const auto seconds = Known(&Measured::ReduceScatterSeconds, group, bytes);
    return seconds ? *seconds
                   : coll::ReduceScatterSeconds(group, bytes, coll::Algorithm::kAuto, value_bytes);
}

std::vector<OpCost> TrainCosts(const Program& list, int64_t sequence, int64_t micro_batch) {
    const int64_t rows = sequence * micro_batch;
    std::vector<OpCost> costs =
        program::Cost(list, program::StepShape{micro_batch, sequence, rows, 0});
    for (size_t i = 0; i < costs.size(); ++i) {
        const program::OpRow& row = program::RowOf(list.ops[i].kind());
        if (!row.Is(Trait::kAttention) || row.pass != program::Pass::kBackward) continue;
        // The cost covers every pair of rows: rows (rows + 1) / 2 for one sequence.
        costs[i].flops *= static_cast<double>(sequence + 1) / static_cast<double>(rows + 1);
    }
    return costs;
}

OpsSeconds TimeOps(const Program& list, std::span<const OpCost> costs, size_t begin, size_t end,
                   const TrainPlace& place) {
    OpsSeconds sum;
    OpTimer timer(list, place);
    for (size_t i = begin; i < end; ++i) timer.Add(list.ops[i], costs[i], sum);
    sum.all.launch = timer.LaunchSeconds();
    return sum;
}

}  // namespace weft::plan
