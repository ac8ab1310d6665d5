#include "program/chunks.h"

#include <utility>

namespace weft::program {

ValueId AppendChunk(ChunkedProgram& all, Differentiated chunk, ValueId output,
                    ValueId side_output) {
    const auto shift = static_cast<ValueId>(all.program.values.size());
    const auto moved = [shift](ValueId id) { return id == kNoValue ? kNoValue : id + shift; };
    const size_t begin = all.program.ops.size();
    for (Value& value : chunk.program.values) {
        value.base = moved(value.base);
        all.program.values.push_back(std::move(value));
    }
    for (Op& op : chunk.program.ops) {
        for (ValueId& id : op.inputs) id = moved(id);
        for (ValueId& id : op.outputs) id = moved(id);
        all.program.ops.push_back(std::move(op));
    }
    all.chunks.push_back({begin, begin + chunk.backward_begin, all.program.ops.size(), shift,
                          static_cast<ValueId>(all.program.values.size()), moved(output),
                          moved(side_output), moved(chunk.output_gradient),
                          moved(chunk.side_gradient)});
    return shift;
}

ValueId FindIn(const ChunkedProgram& all, size_t chunk, std::string_view name) {
    const Chunk& c = all.chunks[chunk];
    for (ValueId id = c.first_value; id < c.end_value; ++id) {
        if (all.program.value(id).name == name) return id;
    }
    return kNoValue;
}

}  // namespace weft::program
