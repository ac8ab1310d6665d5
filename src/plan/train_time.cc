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

// Devices of so much compute and more have kMostInFlight outputs under way: 108 to 132 units with
// tiles of 128 x 128. Less compute, fewer units.
constexpr double kLargeDevice = 1e14, kMostInFlight = 2e6;
// Of a logit and its gradient, written and read where a program keeps them.
constexpr double kLogitBytes = 28;

// The product that one of experts is for each of them, and those of the loss.
OpKind PlainKind(const Op& op) {
    if (op.Is(Trait::kProduct)) return OpKind::kMatMul;
    if (op.Is(Trait::kProductGradInput)) return OpKind::kMatMulGradInput;
    return op.Is(Trait::kProductGradWeight) ? OpKind::kMatMulGradWeight : op.kind();
}

// A product of all rows with one weight.
bool IsOfAllRows(const Op& op, unsigned product) {
    return op.Is(product) && !IsOfExperts(op);
}

double Bytes(const OpCost& cost) {
    return static_cast<double>(cost.read_bytes + cost.written_bytes);
}

class OpTimer {
  public:
    OpTimer(const Program& list, const TrainPlace& place) : list_(list), place_(place) {
        if (!place.style->weft) FindSiblings();
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
            sum.all.tensor += (1 - place_.style->tensor_beside) *
                              WireSeconds(op, static_cast<double>(cost.wire_bytes));
            return;
        }
        ++ops_;
        sum.flops += cost.flops;
        if (AddMeasured(op, cost, sum)) return;
        if (op.Is(Trait::kAttention)) return AddAttention(op, cost, sum);
        const bool product = op.Is(Trait::kAnyProduct);
        const double seconds = product ? ProductSeconds(op, cost)
                                       : place_.style->passes * Bytes(cost) / place_.device.memory;
        (product ? sum.all.products : sum.all.memory) += seconds;
        device_s_ += seconds;
    }

    // Ops are started one after another, ahead of the device where that is slower.
    double LaunchSeconds() const {
        const double gaps = ops_ * place_.device.gap_s;
        if (place_.device.gap_s == 0) return 0;  // a processor's own threads
        return std::max(gaps, ops_ * place_.style->host_op_s - device_s_);
    }

  private:
    // By the machine's tables; false: they have no such op.
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

    // Other programs make one product of several that read the same: of query, key and value, of a
    // gate and what it gates.
    void FindSiblings() {
        std::map<program::ValueId, double> outputs;  // of products, by what they read
        for (const Op& op : list_.ops) {
            if (IsOfAllRows(op, Trait::kProduct)) outputs[op.inputs[0]] += OwnOutputs(op);
        }
        for (const Op& op : list_.ops) {
            if (!IsOfAllRows(op, Trait::kProduct)) continue;
            const double together = outputs[op.inputs[0]] / OwnOutputs(op);
            together_[op.inputs[0]] = together_[program::WeightOf(op)] = together;
        }
    }
    // As many as the op's own, with its siblings'.
    double Together(program::ValueId id) const {
        const auto found = together_.find(id);
        return found == together_.end() ? 1 : found->second;
    }

    double WireSeconds(const Op& op, double bytes) const {
        const coll::TierGroup& group = place_.tensor;
        if (group.ranks < 2) return 0;
        if (op.Is(Trait::kAllReduce)) return place_.collectives.AllReduce(group, bytes);
        if (!op.Is(Trait::kReduceScatter)) return place_.collectives.Gather(group, bytes);
        const auto value_bytes = static_cast<double>(RowBytes(list_.value(op.inputs[0]).dtype, 1));
        return place_.collectives.ReduceScatter(group, bytes, value_bytes);
    }

    double Tiled(double flops, double outputs, double summed) const {
        return TiledAt(place_.device.products, flops, outputs, summed);
    }
    double TiledAt(double rate, double flops, double outputs, double summed) const {
        return flops / rate * (1 + kEdge / summed) * (1 + place_.device.in_flight / (2 * outputs));
    }

    // How many outputs; of what a loss's product leaves, the logits.
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
        if (cost.flops <= 0) return Bytes(cost) / place_.device.memory;
        double flops = cost.flops;
        double outputs = OwnOutputs(op), summed = flops / (2 * outputs), logits = 0;
        if (IsOfAllRows(op, Trait::kProduct)) outputs *= Together(op.inputs[0]);
        if (IsOfAllRows(op, Trait::kProductGradWeight)) outputs *= Together(op.inputs[1]);
        if (op.Is(Trait::kProductGradInput)) summed *= Together(program::WeightOf(op));
        if (op.Is(Trait::kLogits) && op.Is(Trait::kProductGradWeight)) {
            summed /= 3;
            // Others keep the logits: two products in place of three, and they are written and
            // read, in the type computed in, in float32, and their gradients.
            if (!place_.style->weft) {
                flops *= 2.0 / 3;
                logits = kLogitBytes * outputs / place_.device.memory;
            }
        }
        if (place_.eight_bit && !op.Is(Trait::kLogits)) {
            // Operands are read in BF16 and written in FP8 before.
            const double casts = place_.style->casts * 1.5 * static_cast<double>(cost.read_bytes) /
                                 place_.device.memory;
            return casts + TiledAt(place_.device.eight, flops, outputs, std::max(summed, 1.0));
        }
        return logits + std::max(Tiled(flops, outputs, std::max(summed, 1.0)),
                                 Bytes(cost) / place_.device.memory);
    }

    void AddAttention(const Op& op, const OpCost& cost, OpsSeconds& sum) {
        const auto* grad = op.attributes.If<program::AttentionGrad>();
        const bool back = grad != nullptr;
        const program::Attention& a = back ? grad->forward : op.as<program::Attention>();
        double seconds = 0;
        const double context = place_.context.ranks;
        const double length = static_cast<double>(place_.sequence) * context;
        if (place_.style->scores) {
            const double pairs = length * length * static_cast<double>(a.heads) *
                                 static_cast<double>(place_.micro_batch);
            const auto width = static_cast<double>(a.head_dim);
            // Half of the products sum over a head's columns, half over a sequence. Beside them a
            // softmax and a dropout: two bytes a score, one of a mask.
            seconds = (back ? 2 : 1) * (Tiled(2 * pairs * width, pairs, width) +
                                        Tiled(2 * pairs * width, pairs * width / length, length));
            seconds += pairs * (back ? 11 : 9) / place_.device.memory;
            sum.scores += seconds;
        } else {
            const double rate = place_.device.attention * place_.style->attention;
            seconds = std::max(context * cost.flops / rate * (1 + kShortSequence / length),
                               Bytes(cost) / place_.device.memory);
        }
        sum.flops += (context - 1) * cost.flops;
        sum.all.tensor += ExchangeSeconds(a, back, seconds);
        sum.all.attention += seconds;
        device_s_ += seconds;
    }

    // Keys and values of a whole sequence pass by its context ranks while they attend, and in the
    // backward pass their gradients, too.
    double ExchangeSeconds(const program::Attention& a, bool back, double attention) const {
        if (place_.context.ranks < 2) return 0;
        const auto rows =
            static_cast<double>(place_.sequence * place_.context.ranks * place_.micro_batch);
        const double bytes =
            (back ? 2 : 1) * 2 * 2 * rows * static_cast<double>(a.kv_heads * a.head_dim);
        const double moved = place_.collectives.Gather(place_.context, bytes);
        return std::max(0.0, moved - attention) + kContention * std::min(moved, attention);
    }

    const Program& list_;
    const TrainPlace& place_;
    std::map<program::ValueId, double> together_;
    double ops_ = 0, device_s_ = 0;
    double expert_share_ = 1;  // rows that an expert has, of all
};

// A ring through all ranks of a group, over all links of a host together; rounds: 1 or 2.
double RingRounds(const coll::TierGroup& group, double bytes, int rounds) {
    if (group.ranks < 2) return 0;
    const double n = group.ranks, hosts = group.hosts;
    double rate = 1e30, latency = 0;
    if (group.per_host() > 1) {
        rate = group.near.bytes_per_s;
        latency += (n - hosts) * group.near.latency_s;
    }
    if (group.hosts > 1) {
        rate = std::min(rate, group.far.bytes_per_s);
        latency += hosts * group.far.latency_s;
    }
    return rounds * ((n - 1) / n * bytes / rate + latency);
}

}  // namespace

DeviceRates RatesOf(const Machine& machine) {
    DeviceRates rates;
    const double peak = machine.compute.value;
    // What was measured, or fitted, is what products reach already.
    const Mark mark = machine.compute.mark;
    const bool reached = mark == Mark::kMeasured || mark == Mark::kFitted;
    const double usual = reached ? 1 : kProductShare;
    const double products = machine.products ? machine.products->value : usual;
    rates.products = peak * products;
    if (machine.eight_bit) rates.eight = machine.eight_bit->value * products * kEightBitShare;
    rates.attention = machine.attention ? peak * machine.attention->value
                                        : rates.products * kAttentionShare / kProductShare;
    rates.memory = machine.sustained_bytes_per_s();
    rates.in_flight = kMostInFlight * std::min(1.0, peak / kLargeDevice);
    rates.gap_s = peak >= kLargeDevice / 10 ? kGap : 0;
    rates.room = machine.memory.value;
    return rates;
}

const TrainingRates* MeasuredTraining(const Machine& machine, const TrainStyle& style,
                                      DType dtype) {
    if (!machine.measured || !style.weft) return nullptr;
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
    if (rings) return RingRounds(group, bytes, 2);
    const auto seconds = Known(&Measured::AllReduceSeconds, group, bytes);
    return seconds ? *seconds : coll::AllReduceSeconds(group, coll::Algorithm::kAuto, bytes);
}

double Collectives::Gather(const coll::TierGroup& group, double bytes) const {
    if (rings) return RingRounds(group, bytes, 1);
    const auto seconds = Known(&Measured::AllGatherSeconds, group, bytes);
    return seconds ? *seconds : coll::AllGatherSeconds(group, bytes);
}

double Collectives::ReduceScatter(const coll::TierGroup& group, double bytes,
                                  double value_bytes) const {
    if (rings) return RingRounds(group, bytes, 1);
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
        // It has a cost for every pair of rows: rows (rows + 1) / 2 of one sequence.
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
