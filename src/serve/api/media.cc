#include "serve/api/media.h"

#include <fmt/format.h>

#include <string>

namespace weft::serve {
namespace {

constexpr std::string_view kFileNote = "[a file, which this model cannot read]";

// Words within the types of parts, and the notes.
struct Medium {
    std::string_view word, note;
};
constexpr Medium kMedia[] = {{"image", kImageNote},
                             {"screenshot", kImageNote},
                             {"audio", "[a recording, which this model cannot hear]"},
                             {"video", "[a video, which this model cannot see]"},
                             {"document", "[a document, which this model cannot read]"},
                             {"file", kFileNote},
                             {"upload", kFileNote}};

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
        const std::string_view note = NoteOf(part);
        if (!note.empty()) part = {{"type", "text"}, {"text", note}};
    }
}

}  // namespace

std::string_view NoteOf(const Json& part) {
    if (!part.is_object()) return "";
    Fields fields(part);
    const std::string type = fields.Text("type", "");
    const std::string source = Fields(fields.Object("source")).Text("type", "");
    if (type == "document" && (source == "text" || source == "content")) return "";
    for (const auto& [word, note] : kMedia) {
        if (type.find(word) != std::string::npos) return note;
    }
    const bool blob = Fields(fields.Object("resource")).Has("blob");  // of the protocol MCP
    return blob || source == "base64" ? kFileNote : "";
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
