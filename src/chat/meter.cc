#include "chat/meter.h"

namespace weft::chat::jinja {

void Meter::Throw(ErrorCode code, const std::string& message) const {
    throw Failure{MakeError(code, "chat template, line {}: {}", line, message)};
}

void Meter::OverSteps() const {
    Fail(ErrorCode::kCorrupt, "rendering takes more than {} steps", limits_.steps);
}

// What was taken is counted, and its owner gives it back.
void Meter::OverBytes(size_t bytes) {
    Fail(ErrorCode::kCorrupt,
         "rendering needs more memory than it may have: {} bytes more, with {} in use (at most {}) "
         "and {} made so far (at most {})",
         bytes, live_ - bytes, limits_.live_bytes, made_ - bytes, limits_.made_bytes);
}

void Meter::OverOutput() const {
    Fail(ErrorCode::kCorrupt, "the text is longer than {} bytes", limits_.output_bytes);
}

// The level that could not be entered is not left by a destructor.
void Meter::OverDepth() {
    --depth_;
    Fail(ErrorCode::kCorrupt, "nested more than {} levels deep (a macro that calls itself?)",
         limits_.depth);
}

}  // namespace weft::chat::jinja
