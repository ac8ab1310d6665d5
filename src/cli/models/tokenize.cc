// weft tokenize: shows a text as the model's tokens.
#include "base/file.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "model_files/gguf_folder.h"
#include "model_files/hf/folder.h"
#include "model_files/read_tokenizer.h"
#include "tokenizer/open.h"

namespace weft::cli {
namespace {

constexpr const char* kTokenizeFooter =
    "MODEL needs no weights: a folder with only a tokenizer.json, or a GGUF file with only the\n"
    "vocabulary, is enough.\n"
    "\n"
    "Examples:\n"
    "  weft tokenize model.gguf --text \"Hello world\"\n"
    "  weft tokenize model.gguf --file text.txt --no-bos --json";

constexpr uint64_t kMostTextBytes = 1 << 30;

struct TokenizeFlags {
    std::string model, text, file;
    bool no_bos = false, no_special = false, json = false, pull = false;
    Option text_option, file_option;
};

// Opens a file or a folder; it may lack weights.
Result<std::unique_ptr<tokenizer::Tokenizer>> TokenizerOf(const std::string& model) {
    const bool folder = model_files::hf::IsFolder(model) && !model_files::IsGgufFolder(model);
    if (folder) return tokenizer::OpenTokenizerFolder(model);
    WEFT_ASSIGN(const auto source, model_files::OpenModel(model));
    return model_files::LoadTokenizer(*source);
}

Status RunTokenizeCommand(TokenizeFlags& flags) {
    const bool has_text = flags.text_option.given();
    if (has_text == flags.file_option.given()) {
        return MakeError(ErrorCode::kUsage, "the text is missing: use --text T or --file F");
    }
    if (!has_text) {
        WEFT_ASSIGN(flags.text, ReadTextStream(flags.file, kMostTextBytes));
    }
    WEFT_ASSIGN(const auto tokenizer, TokenizerOf(flags.model));
    const std::vector<int32_t> ids = tokenizer->Encode(
        flags.text, {.add_special = !flags.no_bos, .parse_special = !flags.no_special});
    Json pieces = Json::array();
    for (int32_t id : ids) pieces.push_back(tokenizer->Piece(id));
    if (flags.json) {
        PrintJson({{"tokens", ids}, {"pieces", pieces}, {"count", ids.size()}});
        return {};
    }
    for (size_t i = 0; i < ids.size(); ++i) {
        PrintOut("{:>8}  {}\n", ids[i],
                 Printable(pieces[i].dump(-1, ' ', false, Json::error_handler_t::replace)));
    }
    PrintOut("{} tokens\n", ids.size());
    return {};
}

}  // namespace

void AddTokenize(const Command& app, int& status) {
    auto flags = std::make_shared<TokenizeFlags>();
    const Command command =
        app.AddCommand("tokenize", "Print the token ids and pieces of a text", kTokenizeFooter);
    AddModel(command, flags->model, flags->pull);
    flags->text_option = command.AddOption("--text", flags->text, "Text to read");
    flags->file_option =
        command.AddOption("--file", flags->file, "File with the text; - : standard input");
    command.AddFlag("--no-bos", flags->no_bos, "Omit the begin and end tokens of the model");
    command.AddFlag("--no-special", flags->no_special,
                    "Read names of special tokens as plain text");
    SetJsonCallback(command, flags, status, RunTokenizeCommand);
}

}  // namespace weft::cli
