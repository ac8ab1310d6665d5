#include "program/zero.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace weft::program {
namespace {

// A gathered unit is released if its next use is more than this number of ops away.
constexpr size_t kNear = 64;

class ZeroSharer {
  public:
    ZeroSharer(Differentiated differentiated, const ZeroOptions& options)
        : options_(options), ops_(std::move(differentiated.program.ops)) {
        zero_.differentiated = std::move(differentiated);
        unit_of_.assign(program().values.size(), SIZE_MAX);
    }

    ZeroProgram Share() {
        PlanUnits();
        for (FlatBucket& unit : zero_.units) Cut(unit);
        before_.resize(ops_.size());
        after_.resize(ops_.size());
        for (size_t u = 0; u < zero_.units.size(); ++u) {
            PlaceWeights(u);
            PlaceGradients(u);
        }
        PlaceGathers();
        Weave();
        for (FlatBucket& unit : zero_.units) SplitStacks(unit);
        WEFT_CHECK(CheckShapes(program()).ok());
        return std::move(zero_);
    }

  private:
    Program& program() { return zero_.differentiated.program; }
    int64_t Align(int64_t elements) const {
        return (elements + options_.grain - 1) / options_.grain * options_.grain;
    }

    // ---- Units ------------------------------------------------------------------------------

    void PlanUnits() {
        std::map<ValueId, ValueId> gradient_of;
        for (const auto& [weight, gradient] : zero_.differentiated.gradients) {
            gradient_of[weight] = gradient;
        }
        OpenUnits whole, open;
        for (const Op& op : ops_) {
            for (const ValueId id : op.inputs) {
                if (!gradient_of.contains(id) || unit_of_[static_cast<size_t>(id)] != SIZE_MAX) {
                    continue;
                }
                const Value& weight = program().value(id);
                const int64_t elements = weight.shape.Elements(0, 0);
                const bool is_whole = options_.stage == 0 || weight.shape.rank == 1 ||
                                      elements <= options_.whole_elements;
                OpenUnits& units = is_whole && options_.stage > 0 ? whole : open;
                Append(units, is_whole, id, gradient_of[id], elements);
            }
        }
    }

    // Units that are not full, by the types of weights and gradients.
    using OpenUnits = std::map<std::pair<DType, DType>, size_t>;

    void Append(OpenUnits& units, bool whole, ValueId weight, ValueId gradient, int64_t elements) {
        const std::pair types{program().value(weight).dtype, program().value(gradient).dtype};
        const bool alone = std::ranges::find(options_.alone, program().value(weight).slice.name) !=
                           options_.alone.end();
        const auto known = units.find(types);
        const bool fits =
            !alone && known != units.end() &&
            zero_.units[known->second].elements + Align(elements) <= options_.unit_elements;
        if (!fits) {
            zero_.units.emplace_back();
            zero_.units.back().dtype = types.first;
            zero_.units.back().gradient_dtype = types.second;
            zero_.units.back().whole = whole;
            zero_.units.back().alone = alone;
            if (!alone) units.insert_or_assign(types, zero_.units.size() - 1);
        }
        const size_t index = fits ? known->second : zero_.units.size() - 1;
        FlatBucket& unit = zero_.units[index];
        unit.members.push_back({program().value(weight), weight, unit.elements});
        gradients_[weight] = gradient;
        unit_of_[static_cast<size_t>(weight)] = index;
        unit_of_[static_cast<size_t>(gradient)] = index;
        unit.elements += Align(elements);
    }

    void Cut(FlatBucket& unit) const {
        if (unit.whole) {
            unit.parts = {unit.elements};
            unit.own_count = unit.elements;
            return;
        }
        const int64_t grains = unit.elements / options_.grain;
        int64_t begin = 0;
        for (int64_t r = 0; r < options_.ranks; ++r) {
            const int64_t end = grains * (r + 1) / options_.ranks * options_.grain;
            if (r == options_.rank) {
                unit.own_begin = begin;
                unit.own_count = end - begin;
            }
            unit.parts.push_back(end - begin);
            begin = end;
        }
        unit.gradients_shared = options_.stage >= 2;
        unit.weights_shared = options_.stage >= 3;
    }

    // ---- Weights ----------------------------------------------------------------------------

    // Ops [first, last] use a unit after it was gathered for the number-th time.
    struct Run {
        size_t unit = 0;
        size_t first = 0, last = 0;
        int number = 0;
    };

    ValueId NewValue(const std::string& name, DType dtype, int64_t elements, Storage storage) {
        Value value;
        value.name = name;
        value.dtype = dtype;
        value.shape = {elements};
        value.storage = storage;
        return program().AddValue(std::move(value));
    }

    void MakeView(ValueId id, ValueId base, int64_t begin) {
        Value& value = program().values[static_cast<size_t>(id)];
        value.storage = Storage::kView;
        value.base = base;
        value.base_begin = begin;
    }

    void PlaceWeights(size_t u) {
        FlatBucket& unit = zero_.units[u];
        const std::string name = "unit" + std::to_string(u);
        unit.weights =
            NewValue(unit.weights_shared ? name + ".share" : name, unit.dtype,
                     unit.weights_shared ? unit.own_count : unit.elements, Storage::kWeight);
        if (!unit.weights_shared) {
            for (const FlatBucket::Member& member : unit.members) {
                MakeView(member.view, unit.weights, member.begin);
            }
            return;
        }
        int number = 0;
        for (const auto& [first, last] : RunsOf(u)) runs_.push_back({u, first, last, number++});
    }

    // Ranges of ops, both ends included, during which a unit stays gathered.
    std::vector<std::pair<size_t, size_t>> RunsOf(size_t u) {
        std::vector<std::pair<size_t, size_t>> runs;
        const size_t backward = zero_.differentiated.backward_begin;
        for (size_t i = 0; i < ops_.size(); ++i) {
            const bool uses = std::ranges::any_of(ops_[i].inputs, [&](ValueId id) {
                return gradients_.contains(id) && unit_of_[static_cast<size_t>(id)] == u;
            });
            if (!uses) continue;
            const bool turns = !runs.empty() && runs.back().second < backward && i >= backward;
            const bool goes_on =
                !runs.empty() && i - runs.back().second <= (turns ? size_t{1} : kNear);
            if (goes_on) {
                runs.back().second = i;
            } else {
                runs.emplace_back(i, i);
            }
        }
        return runs;
    }

    // Gathers units in the order of their use.
    void PlaceGathers() {
        std::ranges::stable_sort(runs_, {}, &Run::first);
        for (size_t i = 0; i < runs_.size(); ++i) Gather(runs_[i], PlaceOf(i));
    }

    // The op before which a run's unit is gathered.
    size_t PlaceOf(size_t run) const {
        const size_t backward = zero_.differentiated.backward_begin;
        const auto elements = [&](size_t i) { return zero_.units[runs_[i].unit].elements; };
        size_t place = runs_[run].first;
        int64_t ahead = elements(run);
        for (size_t i = run; i-- > 0 && options_.prefetch_elements > 0;) {
            if (runs_[i].first < backward && runs_[run].first >= backward) break;
            if (i + 1 < run && ahead > options_.prefetch_elements) break;
            place = runs_[i].first;
            ahead += elements(i);
        }
        return place;
    }

    // Gathers a unit before op `place`; the ops of the run read views of the result.
    void Gather(const Run& run, size_t place) {
        const FlatBucket unit = zero_.units[run.unit];
        const ValueId all = NewValue(fmt::format("unit{}.all{}", run.unit, run.number), unit.dtype,
                                     unit.elements, Storage::kActivation);
        before_[place].push_back(
            Op{ZeroAllGather{unit.parts, unit.own_begin}, {unit.weights}, {all}});
        std::map<ValueId, ValueId> views;
        for (const FlatBucket::Member& member : unit.members) {
            ValueId view = member.view;
            if (run.number > 0) {
                Value copy = member.weight;
                copy.name += fmt::format(".all{}", run.number);
                view = program().AddValue(std::move(copy));
            }
            MakeView(view, all, member.begin);
            views[member.view] = view;
        }
        for (size_t i = run.first; i <= run.last; ++i) {
            for (ValueId& id : ops_[i].inputs) {
                if (const auto found = views.find(id); found != views.end()) id = found->second;
            }
        }
    }

    // ---- Gradients --------------------------------------------------------------------------

    void PlaceGradients(size_t u) {
        FlatBucket& unit = zero_.units[u];
        const std::string name = "d.unit" + std::to_string(u);
        const DType dtype = unit.gradient_dtype;
        unit.gradients =
            NewValue(unit.gradients_shared ? name + ".share" : name, dtype,
                     unit.gradients_shared ? unit.own_count : unit.elements, Storage::kGradient);
        const ValueId all = unit.gradients_shared
                                ? NewValue(name, dtype, unit.elements, Storage::kActivation)
                                : unit.gradients;
        for (const FlatBucket::Member& member : unit.members) {
            MakeView(gradients_.at(member.view), all, member.begin);
        }
        if (!unit.gradients_shared) return;
        size_t first = SIZE_MAX, last = 0;
        for (size_t i = zero_.differentiated.backward_begin; i < ops_.size(); ++i) {
            const bool adds = std::ranges::any_of(ops_[i].outputs, [&](ValueId id) {
                return program().value(id).storage == Storage::kView &&
                       program().value(id).base == all;
            });
            if (!adds) continue;
            first = std::min(first, i);
            last = i;
        }
        WEFT_CHECK(first != SIZE_MAX);
        before_[first].push_back(Op{Zero{}, {}, {all}});
        after_[last].push_back(Op{ZeroReduceScatter{unit.parts, unit.own_begin},
                                  {all, unit.gradients},
                                  {unit.gradients}});
    }

    static void SplitStacks(FlatBucket& unit) {
        std::vector<FlatBucket::Member> members;
        for (FlatBucket::Member& member : unit.members) {
            if (member.weight.shape.rank < 3) {
                members.push_back(std::move(member));
                continue;
            }
            for (int64_t i = 0; i < member.weight.shape[0]; ++i) {
                const Value matrix = MatrixOf(member.weight, i);
                const int64_t begin = member.begin + i * matrix.shape.Elements(0, 0);
                members.push_back({matrix, member.view, begin});
            }
        }
        unit.members = std::move(members);
    }

    void Weave() {
        std::vector<Op>& ops = program().ops;
        ops.clear();
        const size_t backward = zero_.differentiated.backward_begin;
        for (size_t i = 0; i < ops_.size(); ++i) {
            if (i == backward) zero_.differentiated.backward_begin = ops.size();
            for (Op& op : before_[i]) ops.push_back(std::move(op));
            ops.push_back(std::move(ops_[i]));
            for (Op& op : after_[i]) ops.push_back(std::move(op));
        }
    }

    const ZeroOptions options_;
    std::vector<Op> ops_;
    std::vector<std::vector<Op>> before_, after_;  // by op: ops added before and after it
    std::vector<size_t> unit_of_;                  // by ValueId of weights and gradients
    std::map<ValueId, ValueId> gradients_;         // by weight
    std::vector<Run> runs_;                        // runs of all gathered units
    ZeroProgram zero_;
};

}  // namespace

ZeroProgram ApplyZero(Differentiated differentiated, const ZeroOptions& options) {
    return ZeroSharer(std::move(differentiated), options).Share();
}

}  // namespace weft::program
