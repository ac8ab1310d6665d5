// The interpreter's index_top_k and window_attention (program/latent.h), and head_mat_mul.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "support/naive_ops.h"

namespace weft::support::naive {

template <typename Real>
void Do(const program::HeadMatMul&, OpCall<Real>& c) {
    const Matrix<Real>&x = c.in[0], &weight = c.in[1];
    const int64_t heads = weight.rows, cols = x.cols() / heads, rows = c.out[0].cols() / heads;
    for (int64_t t = 0; t < x.rows; ++t) {
        for (int64_t j = 0; j < heads * rows; ++j) {
            const int64_t head = j / rows, first = j % rows * cols;
            for (int64_t l = 0; l < cols; ++l) {
                c.out[0](t, j) += x(t, head * cols + l) * weight(head, first + l);
            }
        }
    }
}

// Steps begin at position 0, and windows hold the entries of this step's rows.
template <typename Real>
void Do(const program::IndexTopK& a, OpCall<Real>& c) {
    const Matrix<Real>&q = c.in[0], &key = c.in[1], &weights = c.in[2];
    const int64_t heads = weights.cols(), dim = key.cols(), columns = c.out[0].cols();
    const int64_t top = a.Windows(columns);
    for (const kernels::Sequence& s : c.sequences) {
        for (int64_t row = s.row_begin; row < s.row_begin + s.row_count; ++row) {
            const int64_t seen = (row - s.row_begin + 1) / a.stride;
            std::vector<std::pair<Real, int64_t>> scores;  // negated for ascending sort
            for (int64_t w = 0; w < seen; ++w) {
                Real score = 0;
                for (int64_t h = 0; h < heads; ++h) {
                    Real dot = 0;
                    for (int64_t d = 0; d < dim; ++d) {
                        dot += q(row, h * dim + d) * key(s.row_begin + (w + 1) * a.stride - 1, d);
                    }
                    score += weights(row, h) * std::max(dot, Real{0});
                }
                scores.push_back({-score, w});
            }
            std::ranges::sort(scores);
            scores.resize(static_cast<size_t>(std::min(seen, top)));
            std::ranges::sort(scores, {}, &std::pair<Real, int64_t>::second);
            std::vector<int64_t> chosen;
            for (const auto& [score, w] : scores) {
                const int64_t each = a.positions ? a.stride : 1;
                for (int64_t i = 0; i < each; ++i) chosen.push_back(w * each + i);
            }
            for (int64_t p = seen * a.stride; a.positions && p <= row - s.row_begin; ++p) {
                chosen.push_back(p);
            }
            chosen.resize(static_cast<size_t>(columns), -1);
            for (int64_t i = 0; i < columns; ++i) {
                c.out[0](row, i) = static_cast<Real>(chosen[static_cast<size_t>(i)]);
            }
        }
    }
}

template <typename Real>
void Do(const program::WindowAttention& a, OpCall<Real>& c) {
    const Matrix<Real>&q = c.in[0], &rows = c.in[1], &sinks = c.in[2];
    const int64_t width = rows.cols();
    for (const kernels::Sequence& s : c.sequences) {
        for (int64_t row = s.row_begin; row < s.row_begin + s.row_count; ++row) {
            const int64_t position = row - s.row_begin;
            std::vector<std::pair<size_t, int64_t>> seen;  // operand and row
            for (int64_t p = std::max<int64_t>(position - a.window + 1, 0); p <= position; ++p) {
                seen.push_back({1, s.row_begin + p});
            }
            for (int64_t w = 0; a.stride != 0 && w < (position + 1) / a.stride; ++w) {
                bool in = !a.chooses;
                for (int64_t i = 0; !in && i < c.in[4].cols(); ++i) {
                    in = static_cast<int64_t>(c.in[4](row, i)) == w;
                }
                if (in) seen.push_back({3, s.row_begin + (w + 1) * a.stride - 1});
            }
            for (int64_t head = 0; head < a.heads; ++head) {
                Real total = std::exp(sinks(head, 0));
                for (const auto& [operand, at] : seen) {
                    Real score = 0;
                    for (int64_t d = 0; d < width; ++d) {
                        score += q(row, head * width + d) * c.in[operand](at, d);
                    }
                    const Real weight = std::exp(score * Real{a.scale});
                    total += weight;
                    for (int64_t d = 0; d < width; ++d) {
                        c.out[0](row, head * width + d) += weight * c.in[operand](at, d);
                    }
                }
                for (int64_t d = 0; d < width; ++d) c.out[0](row, head * width + d) /= total;
            }
        }
    }
}

}  // namespace weft::support::naive
