// A plugin that goes no further than the creation of a client, built in several ways (CMakeLists.txt):
//   FAKE_ENTRY        the name under which its table is found
//   FAKE_MINOR        the version of the API that it reports
//   FAKE_TABLE_SIZE   the size of the table that it reports
//   FAKE_INITIALIZE   what it answers to PJRT_Plugin_Initialize: "" for success, else the text of the error
#include <pjrt_c_api.h>

#include <cstring>

struct PJRT_Error {
  const char* text;
};

namespace {

PJRT_Error initialize_error{FAKE_INITIALIZE};
PJRT_Error create_error{"no fake device found"};

void destroy_error(PJRT_Error_Destroy_Args*) {}

void error_message(PJRT_Error_Message_Args* args) {
  args->message = args->error->text;
  args->message_size = std::strlen(args->error->text);
}

PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
  args->code = PJRT_Error_Code_NOT_FOUND;
  return nullptr;
}

PJRT_Error* initialize(PJRT_Plugin_Initialize_Args*) {
  return *initialize_error.text == '\0' ? nullptr : &initialize_error;
}

PJRT_Error* attributes(PJRT_Plugin_Attributes_Args* args) {
  args->attributes = nullptr;
  args->num_attributes = 0;
  return nullptr;
}

PJRT_Error* create_client(PJRT_Client_Create_Args*) { return &create_error; }

PJRT_Error* compile(PJRT_Compile_Args*) { return &create_error; }

PJRT_Api make_table() {
  PJRT_Api table{};
  table.struct_size = FAKE_TABLE_SIZE;
  table.pjrt_api_version.struct_size = sizeof(PJRT_Api_Version);
  table.pjrt_api_version.minor_version = FAKE_MINOR;
  table.PJRT_Error_Destroy = destroy_error;
  table.PJRT_Error_Message = error_message;
  table.PJRT_Error_GetCode = error_code;
  table.PJRT_Plugin_Initialize = initialize;
  table.PJRT_Plugin_Attributes = attributes;
  table.PJRT_Client_Create = create_client;
  table.PJRT_Compile = compile;
  return table;
}

PJRT_Api table = make_table();

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* FAKE_ENTRY() { return &table; }
