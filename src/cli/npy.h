// Writes NumPy's .npy files, version 1.0, float32 in C order.
// Source: numpy.lib.format ("NEP 1: A simple file format for NumPy arrays").
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace weft::cli {

// values: [rows, cols].
Status WriteNpy(const std::string& path, std::span<const float> values, int64_t rows, int64_t cols);

}  // namespace weft::cli
