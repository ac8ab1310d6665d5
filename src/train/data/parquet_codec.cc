#include "train/data/parquet_codec.h"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <string>
#ifdef WEFT_HAS_SNAPPY
#include <snappy.h>
#endif
#ifdef WEFT_HAS_ZSTD
#include <zstd.h>
#endif
#ifdef WEFT_HAS_LZ4
#include <lz4.h>
#endif

namespace weft::train::parquet {
namespace {

using Out = std::span<std::byte>;

bool Copy(ColumnBytes packed, Out out) {
    if (packed.size() != out.size()) return false;
    std::ranges::copy(packed, out.begin());
    return true;
}

bool Gunzip(ColumnBytes packed, Out out) {
    z_stream z{};
    if (::inflateInit2(&z, MAX_WBITS + 32) != Z_OK) return false;
    const std::unique_ptr<z_stream, int (*)(z_stream*)> ends(&z, &::inflateEnd);
    z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
    z.avail_in = static_cast<uInt>(packed.size());
    z.next_out = reinterpret_cast<Bytef*>(out.data());
    z.avail_out = static_cast<uInt>(out.size());
    return ::inflate(&z, Z_FINISH) == Z_STREAM_END && z.avail_out == 0;
}

#ifdef WEFT_HAS_SNAPPY
bool Unsnap(ColumnBytes packed, Out out) {
    const auto* from = reinterpret_cast<const char*>(packed.data());
    size_t size = 0;
    return snappy::GetUncompressedLength(from, packed.size(), &size) && size == out.size() &&
           snappy::RawUncompress(from, packed.size(), reinterpret_cast<char*>(out.data()));
}
#else
constexpr std::nullptr_t Unsnap = nullptr;
#endif

#ifdef WEFT_HAS_ZSTD
bool Unzstd(ColumnBytes packed, Out out) {
    return ::ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size()) == out.size();
}
#else
constexpr std::nullptr_t Unzstd = nullptr;
#endif

#ifdef WEFT_HAS_LZ4
bool Unlz4(ColumnBytes packed, Out out) {
    const int made = ::LZ4_decompress_safe(
        reinterpret_cast<const char*>(packed.data()), reinterpret_cast<char*>(out.data()),
        static_cast<int>(packed.size()), static_cast<int>(out.size()));
    return made >= 0 && static_cast<size_t>(made) == out.size();
}
#else
constexpr std::nullptr_t Unlz4 = nullptr;
#endif

struct Codec {
    std::string_view name, package;  // the package that the build needs; "": never read
    bool (*unpack)(ColumnBytes, Out) = nullptr;
};
// By number (parquet.thrift, CompressionCodec).
constexpr Codec kCodecs[] = {
    {"nothing", "", Copy},
    {"snappy", "libsnappy-dev", Unsnap},
    {"gzip", "", Gunzip},
    {"LZO", ""},
    {"brotli", ""},
    {"Hadoop's LZ4", ""},
    {"zstd", "libzstd-dev", Unzstd},
    {"LZ4", "liblz4-dev", Unlz4},
};

}  // namespace

void Unpack(int codec, ColumnBytes packed, std::span<std::byte> out, std::string_view column) {
    const bool known = codec >= 0 && codec < static_cast<int>(std::size(kCodecs));
    const Codec named = known ? kCodecs[codec] : Codec{"an unknown codec", ""};
    if (named.unpack == nullptr) {
        ColumnFail(
            fmt::format("column '{}' is compressed with {}, which {}. Write it with zstd", column,
                        named.name,
                        named.package.empty()
                            ? "is not read"
                            : fmt::format("this program was built without ({})", named.package)),
            ErrorCode::kUnsupported);
    }
    if (!named.unpack(packed, out)) {
        ColumnFail(fmt::format("a page of column '{}' can't be unpacked", column));
    }
}

}  // namespace weft::train::parquet
