#include "program/model_chunk.h"

#include <utility>

namespace weft::program {

ValueId AppendChunk(ChunkedProgram& all, ExpandedLoss chunk, ValueId side_output) {
    Differentiated& added = chunk.differentiated;
    const auto shift = static_cast<ValueId>(all.program.values.size());
    const auto moved = [shift](ValueId id) { return id == kNoValue ? kNoValue : id + shift; };
    const size_t begin = all.program.ops.size();
    for (Value& value : added.program.values) {
        value.base = moved(value.base);
        all.program.values.push_back(std::move(value));
    }
    for (Op& op : added.program.ops) {
        for (ValueId& id : op.inputs) id = moved(id);
        for (ValueId& id : op.outputs) id = moved(id);
        all.program.ops.push_back(std::move(op));
    }
    ModelChunk& appended = all.chunks.emplace_back();
    appended.begin = begin;
    appended.evaluate_begin = begin + chunk.evaluate_begin;
    appended.predict_begin = begin + chunk.predict_begin;
    appended.backward_begin = begin + added.backward_begin;
    appended.end = all.program.ops.size();
    appended.first_value = shift;
    appended.end_value = static_cast<ValueId>(all.program.values.size());
    appended.loss = {moved(chunk.values.losses), moved(chunk.values.evaluated),
                     moved(chunk.values.hits), moved(chunk.values.evaluated_hits),
                     moved(chunk.values.predicted)};
    appended.side_output = moved(side_output);
    appended.output_gradient = moved(added.output_gradient);
    appended.side_gradient = moved(added.side_gradient);
    return shift;
}

}  // namespace weft::program
