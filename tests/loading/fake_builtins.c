/* Stands for libnvrtc-builtins: it only has to be there. */
int attn_fake_builtins(void);
__attribute__((visibility("default"))) int attn_fake_builtins(void) { return 1; }
