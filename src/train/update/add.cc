#include "train/update/add.h"

#include "train/update/kinds.h"

namespace weft::train {
namespace {

using program::FlatBucket;
using program::Group;
using program::Storage;
using program::ValueId;

class Adder {
  public:
    Adder(program::ChunkedProgram& list, TrainState& state, UpdateRule& rule,
          const UpdateGroups& groups)
        : list_(list), program_(list.program), state_(state), rule_(rule), groups_(groups) {}

    OpsAfterUpdate Run() {
        for (size_t i = 0; i < state_.parts().size(); ++i) AddValues(i);
        list_.update.sum_begin = program_.ops.size();
        for (const OwnPart& part : state_.parts()) SumGradients(part);
        SumSquares();
        list_.update.apply_begin = program_.ops.size();
        rule_.Prepare(program_);
        for (size_t i = 0; i < state_.parts().size(); ++i) {
            rule_.UpdatePart(program_, i);
            Publish(state_.parts()[i]);
        }
        list_.update.end = program_.ops.size();
        OpsAfterUpdate after;
        after.average =
            Range([&](size_t i) { state_.parts()[i].average = rule_.AveragePart(program_, i); });
        if (!rule_.has_view()) return after;
        const auto view = [&](bool averaged) {
            return Range([&](size_t i) {
                rule_.ViewPart(program_, i, averaged);
                Publish(state_.parts()[i]);
            });
        };
        after.averaged = view(true);
        after.again = view(false);
        return after;
    }

  private:
    // The ops that add(part) adds for all parts.
    template <typename F>
    program::OpRange Range(const F& add) {
        const size_t begin = program_.ops.size();
        for (size_t i = 0; i < state_.parts().size(); ++i) add(i);
        return {begin, program_.ops.size()};
    }
    void Emit(program::OpAttributes attributes, std::vector<ValueId> read, ValueId written) {
        program_.ops.push_back({std::move(attributes), std::move(read), {written}});
    }
    // The own part of a unit's weights or gradients as a separate value.
    ValueId OwnOf(const FlatBucket& unit, ValueId all, bool shared, const std::string& name) {
        if (shared || unit.own_count == unit.elements) return all;
        const DType dtype = program_.value(all).dtype;
        if (unit.own_count == 0) return AddKept(program_, name, dtype, 0);
        program::Value view{name, dtype, {unit.own_count}, Storage::kView};
        view.base = all;
        view.base_begin = unit.own_begin;
        return program_.AddValue(std::move(view));
    }
    void AddValues(size_t index) {
        OwnPart& part = state_.parts()[index];
        const FlatBucket& unit = *part.unit;
        const std::string name = fmt::format("update{}", index);
        part.gradients =
            OwnOf(unit, unit.gradients, unit.gradients_shared, name + ".own_gradients");
        part.weights = OwnOf(unit, unit.weights, unit.weights_shared, name + ".own_weights");
        part.copy = program::kNoValue;
        if (unit.dtype == DType::kF32) return;
        part.copy = part.weights;
        part.weights = AddKept(program_, name + ".master", DType::kF32, unit.own_count);
    }

    // Sums gradients that the passes have not summed. Afterwards the own part covers the whole
    // batch.
    void SumGradients(const OwnPart& part) {
        const FlatBucket& unit = *part.unit;
        if (groups_.data && !unit.gradients_shared) {
            if (unit.whole) {
                Emit(program::SumOver{Group::kData}, {unit.gradients}, unit.gradients);
            } else {
                Emit(program::ZeroReduceScatter{unit.parts, unit.own_begin, false},
                     {unit.gradients, part.gradients}, part.gradients);
            }
        }
        // (A tensor of two stages, such as tied embeddings, is alone in its unit, so own parts
        // match.)
        if (groups_.tied && unit.alone && unit.own_count > 0) {
            Emit(program::SumOver{Group::kTied}, {part.gradients}, part.gradients);
        }
    }

    // Sums squares over the whole model, each element once.
    void SumSquares() {
        const bool wide = groups_.float64_sums;
        const ValueId norm =
            AddKept(program_, "update.norm", wide ? DType::kF64 : DType::kF32, wide ? 1 : 2);
        list_.update.norm = norm;
        Emit(program::Zero{}, {}, norm);
        for (const OwnPart& part : state_.parts()) {
            program::AddSquares squares;
            for (const ElementRange& range : part.sole) {
                squares.ranges.push_back(
                    {range.begin - part.unit->own_begin, range.end - part.unit->own_begin});
            }
            if (!squares.ranges.empty()) Emit(std::move(squares), {part.gradients, norm}, norm);
        }
        if (groups_.world) Emit(program::SumOver{Group::kWorld}, {norm}, norm);
    }

    // Gathers this rank's part to the ranks that read it.
    void Publish(const OwnPart& part) {
        const FlatBucket& unit = *part.unit;
        if (!groups_.data || unit.whole || unit.weights_shared) return;
        const ValueId own = part.copy == program::kNoValue ? part.weights : part.copy;
        Emit(program::ZeroAllGather{unit.parts, unit.own_begin}, {own}, unit.weights);
    }

    program::ChunkedProgram& list_;
    program::Program& program_;
    TrainState& state_;
    UpdateRule& rule_;
    const UpdateGroups groups_;
};

}  // namespace

OpsAfterUpdate AddUpdate(program::ChunkedProgram& list, TrainState& state, UpdateRule& rule,
                         const UpdateGroups& groups) {
    return Adder(list, state, rule, groups).Run();
}

}  // namespace weft::train
