#include "serve/api/media.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace weft::serve {
namespace {

constexpr std::string_view kFileNote = "[a file, which this model cannot read]";

// The types of parts in the clients' APIs, and their notes: "input_image", "image-data".
struct Medium {
    std::string_view type, note;
};
constexpr Medium kMedia[] = {{"image", kImageNote},
                             {"screenshot", kImageNote},
                             {"audio", "[a recording, which this model cannot hear]"},
                             {"video", "[a video, which this model cannot see]"},
                             {"document", "[a document, which this model cannot read]"},
                             {"file", kFileNote},
                             {"upload", kFileNote}};
constexpr std::string_view kHeads[] = {"input_", "output_", "computer_", "container_"};
constexpr std::string_view kTails[] = {"",     "_url", "_file",   "_data", "_base64",
                                       "_b64", "_id",  "_embeds", "_pil",  "_content"};

// Null: the type is of no medium that is known.
const Medium* FindMedium(std::string type) {
    std::ranges::replace(type, '-', '_');
    std::string_view rest = type;
    for (const std::string_view head : kHeads) {
        if (rest.starts_with(head)) rest.remove_prefix(head.size());
    }
    const auto* const found = std::ranges::find_if(kMedia, [&](const Medium& each) {
        return rest.starts_with(each.type) &&
               std::ranges::find(kTails, rest.substr(each.type.size())) != std::end(kTails);
    });
    return found == std::end(kMedia) ? nullptr : found;
}

// Ollama's `images`: a note behind the member `text`, a text or a list of parts. Readers refuse
// others. (One note for all: a body of 3 MB has a million empty images.)
void NoteImages(Json& json, const char* text) {
    const auto images = json.find("images");
    if (images == json.end() || !images->is_array() || images->empty()) return;
    Json content = json.value(text, Json());
    if (content.is_null()) content = "";
    if (!content.is_string() && !content.is_array()) return;
    const size_t count = images->size();
    const std::string note = count == 1
                                 ? std::string(kImageNote)
                                 : fmt::format("[{} images, which this model cannot see]", count);
    if (content.is_array()) {
        content.push_back({{"type", "text"}, {"text", note}});
    } else {
        std::string& words = content.get_ref<std::string&>();
        if (!words.empty()) words += '\n';
        words += note;
    }
    json.erase("images");
    json[text] = std::move(content);
}

void NoteMessage(Json& message, bool everywhere) {
    if (!message.is_object()) return;
    const std::string role = Fields(message).Text("role", "");
    if (!everywhere && role != "tool" && role != "function") return;
    NoteImages(message, "content");
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) return;
    for (Json& part : *content) {
        const std::string note = NoteOf(part);
        if (!note.empty()) part = {{"type", "text"}, {"text", note}};
    }
}

}  // namespace

std::string NoteOf(const Json& part) {
    if (!part.is_object()) return "";
    Fields fields(part);
    const std::string type = fields.Text("type", "");
    const std::string source = Fields(fields.Object("source")).Text("type", "");
    if (type == "document" && (source == "text" || source == "content")) return "";
    const Medium* const medium = FindMedium(type);
    const bool blob = Fields(fields.Object("resource")).Has("blob");  // of the protocol MCP
    if (medium == nullptr && !blob && source != "base64") return "";
    const std::string words = fields.Text("text", "");
    return fmt::format("{}{}{}", words, words.empty() ? "" : "\n",
                       medium == nullptr ? kFileNote : medium->note);
}

void NoteMedia(Json& body, bool everywhere) {
    if (everywhere) NoteImages(body, "prompt");
    for (const char* name : {"messages", "input"}) {
        const auto list = body.find(name);
        if (list == body.end() || !list->is_array()) continue;
        for (Json& message : *list) NoteMessage(message, everywhere);
    }
}

}  // namespace weft::serve
