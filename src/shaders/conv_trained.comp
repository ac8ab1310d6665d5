//: conv_trained
//: conv_sum_grad -DSUM_GRAD
//: conv_input_grad -DINPUT_GRAD
//: conv_weight_grad -DWEIGHT_GRAD
//: conv_weight_grad_end -DWEIGHT_END
// The causal convolution of training, over whole sequences, and its gradients
// (program/recurrent.h). With u the convolved input (x, or inner * x) and z the sum before act:
//     conv_trained      y = act(z), times outer if there are gates
//     conv_sum_grad     dz = dy * outer * act'(z), and douter = dy * act(z)
//     conv_input_grad   du[t] = the sum of weight[j] * dz[t + kTaps - 1 - j]; dx = du * inner,
//                       dinner = du * x
//     conv_weight_grad  for a block of rows: the sums of dz[t] * u[t - kTaps + 1 + j], and of dz;
//                       workgroup (columns, block). kLanes invocations share a column.
//     conv_weight_grad_end  dw += and db += the sums of all blocks
// Without WEIGHT: an invocation per element.
#version 460
#include "floats.glsl"
#include "glu.glsl"
#include "sequences.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTaps = 4;
layout(constant_id = 2) const bool kSilu = false;
layout(constant_id = 3) const bool kGated = false;

#ifdef WEIGHT_END
layout(push_constant, scalar) uniform Args {
    Floats sums;    // [blocks, cols, kTaps + 1]
    Floats dw, db;  // [cols, kTaps]; [cols], 0 if absent
    uint cols, blocks;
};

void main() {
    const uint each = kTaps + 1, i = gl_GlobalInvocationID.x;
    if (i >= cols * each) return;
    float sum = 0;
    for (uint b = 0; b < blocks; ++b) sum += sums.at[b * cols * each + i];
    const uint column = i / each, j = i % each;
    if (j < kTaps) {
        dw.at[column * kTaps + j] += sum;
    } else if (uint64_t(db) != 0) {
        db.at[column] += sum;
    }
}
#else
layout(push_constant, scalar) uniform Args {
    Floats x, weight, bias, inner, outer;  // bias, inner, outer: 0 if absent
    Sequences sequences;
    Ints row_sequence;
    Floats dy;     // conv_input_grad, conv_weight_grad: dz
    Floats y;      // or dz, dx, or the blocks' sums
    Floats other;  // kGated: douter, or dinner
    uint cols, rows, block_rows;
};

// The rows of a row's sequence.
int Begin(uint row) {
    return sequences.at[row_sequence.at[row]].row_begin;
}
int End(uint row) {
    const SequenceEntry sequence = sequences.at[row_sequence.at[row]];
    return sequence.row_begin + sequence.row_count;
}
float Input(int row, int begin, uint column) {
    if (row < begin) return 0.0;
    const uint at = uint(row) * cols + column;
    return kGated ? x.at[at] * inner.at[at] : x.at[at];
}

#ifdef WEIGHT_GRAD
const uint kLanes = 8;
shared float parts[gl_WorkGroupSize.x];

void main() {
    const uint columns = gl_WorkGroupSize.x / kLanes, own = gl_LocalInvocationIndex % columns;
    const uint lane = gl_LocalInvocationIndex / columns;
    const uint column = gl_WorkGroupID.x * columns + own;
    const uint first = gl_WorkGroupID.y * block_rows, end = min(first + block_rows, rows);
    float sums[kTaps + 1];
    for (uint j = 0; j <= kTaps; ++j) sums[j] = 0.0;
    for (uint row = first + lane; row < end && column < cols; row += kLanes) {
        const float slope = dy.at[row * cols + column];
        const int begin = Begin(row);
        for (uint j = 0; j < kTaps; ++j) {
            sums[j] = fma(slope, Input(int(row + j + 1) - int(kTaps), begin, column), sums[j]);
        }
        sums[kTaps] += slope;
    }
    for (uint j = 0; j <= kTaps; ++j) {
        barrier();
        parts[gl_LocalInvocationIndex] = sums[j];
        barrier();
        if (lane != 0 || column >= cols) continue;
        float sum = 0;
        for (uint i = 0; i < kLanes; ++i) sum += parts[i * columns + own];
        y.at[(gl_WorkGroupID.y * cols + column) * (kTaps + 1) + j] = sum;
    }
}
#else
float Sum(uint row, uint column) {
    const int begin = Begin(row);
    float sum = uint64_t(bias) == 0 ? 0.0 : bias.at[column];
    for (uint j = 0; j < kTaps; ++j) {
        const float tap = weight.at[column * kTaps + j];
        sum = fma(tap, Input(int(row + j + 1) - int(kTaps), begin, column), sum);
    }
    return sum;
}

#if defined(INPUT_GRAD)
void Element(uint i, uint row, uint column) {
    const int end = End(row);
    float sum = 0;
    for (uint j = 0; j < kTaps; ++j) {
        const uint later = row + kTaps - 1 - j;
        if (int(later) >= end) continue;
        sum = fma(weight.at[column * kTaps + j], dy.at[later * cols + column], sum);
    }
    if (kGated) other.at[i] = sum * x.at[i];
    y.at[i] = kGated ? sum * inner.at[i] : sum;
}
#elif defined(SUM_GRAD)
void Element(uint i, uint row, uint column) {
    const float sum = Sum(row, column), open = Sigmoid(sum);
    float slope = dy.at[i];
    if (kGated) {
        other.at[i] = slope * (kSilu ? sum * open : sum);
        slope *= outer.at[i];
    }
    if (kSilu) slope *= open * (1.0 + sum * Sigmoid(-sum));
    y.at[i] = slope;
}
#else
void Element(uint i, uint row, uint column) {
    float sum = Sum(row, column);
    if (kSilu) sum *= Sigmoid(sum);
    y.at[i] = kGated ? sum * outer.at[i] : sum;
}
#endif

void main() {
    const uint count = rows * cols, stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) Element(i, i / cols, i % cols);
}
#endif
#endif
