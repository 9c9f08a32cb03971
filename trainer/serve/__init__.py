"""The embedded policy server, `python -m trainer.serve`: vLLM's part of the OpenAI API that nightshift uses, on a CPU.

`__main__` starts it, `app` holds the routes, `requests` what a request and a reply look like, `queue` batches requests of one
adapter, `generation` samples, `policy` holds base model and adapters, `kv` their keys and values, `grammar` JSON schemas.
"""
