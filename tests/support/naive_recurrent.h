// The interpreter's ops with recurrent state, and the index ops around them. The state is zero
// before each sequence of a step.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/naive_ops.h"

namespace weft::support::naive {

template <typename Real>
void Do(const program::PickColumns& a, OpCall<Real>& c) {
    const int64_t from = c.in[0].cols() / a.heads, to = c.out[0].cols() / a.heads;
    for (int64_t i = 0; i < c.out[0].rows; ++i) {
        for (int64_t j = 0; j < c.out[0].cols(); ++j) {
            c.out[0](i, j) = c.in[0](i, j / to * from + a.begin + j % to);
        }
    }
}

template <typename Real>
void Do(const program::CausalConv& a, OpCall<Real>& c) {
    const Matrix<Real>&x = c.in[0], &weight = c.in[1];
    const int64_t taps = weight.cols();
    for (const kernels::Sequence& s : c.sequences) {
        for (int64_t row = s.row_begin; row < s.row_begin + s.row_count; ++row) {
            for (int64_t col = 0; col < x.cols(); ++col) {
                Real sum = a.biased(c.in.size()) ? c.in[2](col, 0) : Real{0};
                for (int64_t j = 0; j < taps; ++j) {
                    const int64_t at = row - taps + 1 + j;
                    const Real inner = a.gated && at >= s.row_begin ? c.in.end()[-3](at, col) : 1;
                    if (at >= s.row_begin) sum += weight(col, j) * inner * x(at, col);
                }
                if (a.silu) sum /= 1 + std::exp(-sum);
                c.out[0](row, col) = a.gated ? sum * c.in.end()[-2](row, col) : sum;
            }
        }
    }
}

template <typename Real>
void Do(const program::PoolWindows& a, OpCall<Real>& c) {
    const Matrix<Real>&values = c.in[0], &gates = c.in[1], &bias = c.in[3];
    const int64_t window = bias.rows, width = c.out[0].cols();
    for (const kernels::Sequence& s : c.sequences) {
        for (int64_t row = s.row_begin; row < s.row_begin + s.row_count; ++row) {
            const int64_t position = c.in[2].Int(row);
            if ((position + 1) % window != 0) continue;
            const int64_t back = a.overlaps && position >= window ? 2 * window : window;
            for (int64_t col = 0; col < width; ++col) {
                Real weights = 0, sum = 0;
                for (int64_t at = row - back + 1; at <= row; ++at) {
                    const int64_t from = col + (a.overlaps && row - at < window ? width : 0);
                    const int64_t place = (position - row + at) % window;
                    const Real weight = std::exp(gates(at, from) + bias(place, from));
                    weights += weight;
                    sum += weight * values(at, from);
                }
                c.out[0](row, col) = sum / weights;
            }
        }
    }
}

template <typename Real>
void Do(const program::DeltaRule& a, OpCall<Real>& c) {
    const Matrix<Real>&q = c.in[0], &k = c.in[1], &v = c.in[2], &decay = c.in[3];
    const Matrix<Real>&a_of = c.in[a.ssd ? 4 : 5], &dt = c.in[a.ssd ? 5 : 6];
    const int64_t heads = a_of.rows, dim = k.cols() / a.key_heads, cols = v.cols() / heads;
    const int64_t each = decay.cols() / heads;
    for (const kernels::Sequence& s : c.sequences) {
        for (int64_t unit = 0; unit < heads * cols; ++unit) {
            const int64_t head = unit / cols, key = a.KeyHeadOf(head) * dim;
            std::vector<Real> state(static_cast<size_t>(dim));
            for (int64_t row = s.row_begin; row < s.row_begin + s.row_count; ++row) {
                Real known = 0, out = 0, step = 0;
                for (int64_t i = 0; i < dim; ++i) {
                    const int64_t at = head * each + (each == 1 ? 0 : i);
                    const Real x = decay(row, at) + dt(at, 0);
                    const Real rate = a_of(head, a.ssd && a.by_channel ? i : 0);
                    step = std::log1p(std::exp(x));
                    const Real log = a.floor == 0
                                         ? rate * step
                                         : Real{a.floor} / (1 + std::exp(-std::abs(rate) * x));
                    state[static_cast<size_t>(i)] *= std::exp(log);
                    known += Real{a.key_scale} * k(row, key + i) * state[static_cast<size_t>(i)];
                }
                const Real change =
                    a.ssd ? v(row, unit) * step
                          : (v(row, unit) - known) / (1 + std::exp(-c.in[4](row, head)));
                if (a.ssd) out = c.in[6](head, 0) * v(row, unit);
                for (int64_t i = 0; i < dim; ++i) {
                    state[static_cast<size_t>(i)] += Real{a.key_scale} * k(row, key + i) * change;
                    out += Real{a.query_scale} * q(row, key + i) * state[static_cast<size_t>(i)];
                }
                c.out[0](row, unit) = out;
            }
        }
    }
}

}  // namespace weft::support::naive
