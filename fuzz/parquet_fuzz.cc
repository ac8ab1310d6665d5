// libFuzzer target: any bytes as a Parquet file. Its lines must be JSON objects.
//     build-fuzz/fuzz/parquet_fuzz -max_total_time=60 -malloc_limit_mb=256 fuzz/corpus/parquet
#include <string_view>

#include "base/json.h"
#include "support/memory_file.h"
#include "train/data/parquet.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    using namespace weft;
    static support::MemoryFile memory;
    const auto file = File::Open(memory.Write(bytes, size));
    WEFT_CHECK(file.ok());
    size_t all = 0;
    const Status read = train::ReadParquet(*file, [&](std::string_view lines) -> Status {
        WEFT_CHECK(lines.ends_with('\n'));
        const std::string_view line = lines.substr(0, lines.find('\n'));
        if (line.size() < 4096) WEFT_CHECK(ParseJsonText(line).ok());
        all += lines.size();
        if (all < (1 << 22)) return {};
        return MakeError(ErrorCode::kUnsupported, "enough");
    });
    WEFT_CHECK(read.ok() || !read.error().message.empty());
    return 0;
}
