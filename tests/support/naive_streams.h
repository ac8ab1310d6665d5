// The interpreter's ops of hyper-connections (program/streams.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/naive_ops.h"

namespace weft::support::naive {

template <typename Real>
void Do(const program::StreamWeights& a, OpCall<Real>& c) {
    const int64_t n = a.streams, cols = c.in[0].cols();
    const Matrix<Real>&base = c.in[1], &scale = c.in[2];
    const auto sigmoid = [](Real x) { return 1 / (1 + std::exp(-x)); };
    for (int64_t t = 0; t < c.in[0].rows; ++t) {
        const auto logit = [&](int64_t i) {
            const int64_t kind = cols == n ? 0 : std::min<int64_t>(i / n, 2);
            return c.in[0](t, i) * scale(kind, 0) + base(i, 0);
        };
        Matrix<Real>& y = c.out[0];
        for (int64_t i = 0; i < n; ++i) y(t, i) = sigmoid(logit(i)) + Real{a.eps};
        if (cols == n) continue;
        const bool mixes = cols > 2 * n;
        for (int64_t i = n; i < 2 * n; ++i) {
            y(t, i) = Real{a.magnitude} * sigmoid(logit(i)) + Real{mixes ? 0 : a.eps};
        }
        if (!mixes) continue;
        const auto at = [&](int64_t row, int64_t col) -> Real& {
            return y(t, 2 * n + row * n + col);
        };
        for (int64_t row = 0; row < n; ++row) {
            Real sum = 0;
            for (int64_t col = 0; col < n; ++col) sum += std::exp(logit(2 * n + row * n + col));
            for (int64_t col = 0; col < n; ++col) {
                at(row, col) = std::exp(logit(2 * n + row * n + col)) / sum + Real{a.eps};
            }
        }
        for (int64_t half = 1; half < 2 * a.iterations; ++half) {
            for (int64_t i = 0; i < n; ++i) {  // columns first, then rows and columns alternately
                Real sum = Real{a.eps};
                for (int64_t j = 0; j < n; ++j) sum += half % 2 == 1 ? at(j, i) : at(i, j);
                for (int64_t j = 0; j < n; ++j) (half % 2 == 1 ? at(j, i) : at(i, j)) /= sum;
            }
        }
    }
}

template <typename Real>
void Do(const program::MergeStreams& a, OpCall<Real>& c) {
    const int64_t cols = c.out[0].cols();
    for (int64_t t = 0; t < c.in[0].rows; ++t) {
        for (int64_t i = 0; i < cols; ++i) {
            Real sum = 0;
            for (int64_t s = 0; s < a.streams; ++s) sum += c.in[1](t, s) * c.in[0](t, s * cols + i);
            c.out[0](t, i) = sum;
        }
    }
}

template <typename Real>
void Do(const program::MixStreams& a, OpCall<Real>& c) {
    const Matrix<Real>& update = c.in.back();
    const int64_t n = a.streams, cols = update.cols();
    for (int64_t t = 0; t < update.rows; ++t) {
        for (int64_t i = 0; i < n * cols; ++i) {
            const int64_t to = i / cols, col = i % cols;
            if (c.in.size() == 1) {
                c.out[0](t, i) = update(t, col);
                continue;
            }
            Real sum = c.in[1](t, n + to) * c.in[2](t, col);
            if (c.in[1].cols() == 2 * n) {
                c.out[0](t, i) = sum + c.in[0](t, i);
                continue;
            }
            for (int64_t from = 0; from < n; ++from) {
                sum += c.in[1](t, 2 * n + from * n + to) * c.in[0](t, from * cols + col);
            }
            c.out[0](t, i) = sum;
        }
    }
}

// ---- Gemma 3n -----------------------------------------------------------------------------------

template <typename Real>
void Do(const program::AltUpWeights& a, OpCall<Real>& c) {
    const int64_t n = a.streams;
    for (int64_t t = 0; t < c.in[0].rows; ++t) {
        for (int64_t i = 0; i < 2 * n; ++i) c.out[0](t, i) = 0;
        for (int64_t to = 0; to < n; ++to) {
            for (int64_t from = 0; from < n; ++from) {
                Real& weight = c.out[0](t, 2 * n + from * n + to);
                weight = from == to ? 1 : 0;
                if (!a.corrects) weight += c.in[0](t, to * n + from);
                if (a.corrects && from == 0) weight -= 1 + c.in[0](t, to);
            }
            if (a.corrects) c.out[0](t, n + to) = 1 + c.in[0](t, to);
        }
    }
}

template <typename Real>
void Do(const program::MatchStreams&, OpCall<Real>& c) {
    const Matrix<Real>&x = c.in[0], &like = c.in[1];
    const int64_t n = like.cols();
    for (int64_t t = 0; t < x.rows; ++t) {
        for (int64_t begin = 0; begin < x.cols(); begin += n) {
            Real own = 0, target = 0;
            for (int64_t i = 0; i < n; ++i) {
                own += x(t, begin + i) * x(t, begin + i) / static_cast<Real>(n);
                target += like(t, i) * like(t, i) / static_cast<Real>(n);
            }
            const Real factor = std::sqrt(target) / std::sqrt(std::max(own, Real(1e-5)));
            for (int64_t i = 0; i < n; ++i) c.out[0](t, begin + i) = factor * x(t, begin + i);
        }
    }
}

template <typename Real>
void Do(const program::ScaleColumns&, OpCall<Real>& c) {
    for (int64_t t = 0; t < c.in[0].rows; ++t) {
        for (int64_t i = 0; i < c.out[0].cols(); ++i) {
            c.out[0](t, i) = c.in[0](t, i) * c.in[1](i, 0);
        }
    }
}

template <typename Real>
void Do(const program::RowMoments&, OpCall<Real>& c) {
    for (int64_t t = 0; t < c.in[0].rows; ++t) {
        Real sum = 0, squares = 0;
        for (int64_t i = 0; i < c.in[0].cols(); ++i) {
            sum += c.in[0](t, i);
            squares += c.in[0](t, i) * c.in[0](t, i);
        }
        c.out[0](t, 0) = sum;
        c.out[0](t, 1) = squares;
    }
}

template <typename Real>
void Do(const program::Sparsify& a, OpCall<Real>& c) {
    const auto whole = static_cast<Real>(a.whole);
    for (int64_t t = 0; t < c.in[0].rows; ++t) {
        const Real mean = c.in[1](t, 0) / whole;
        const Real deviation = std::sqrt(c.in[1](t, 1) / whole - mean * mean);
        for (int64_t i = 0; i < c.in[0].cols(); ++i) {
            c.out[0](t, i) =
                std::max(c.in[0](t, i) - mean - Real{a.deviations} * deviation, Real{0});
        }
    }
}

}  // namespace weft::support::naive
