"""Django's settings. What an operator can set comes from AgentConfig; the rest is fixed here."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

from fleet.console.nav import UNFOLD as UNFOLD
from fleetsite.config import AgentConfig, ConfigError
from fleetsite.content_policy import PAGE_POLICY
from fleetsite.databases import state_store
from fleetsite.logconf import LOGGING as LOGGING

try:
    FLEETSITE = AgentConfig.load(os.environ)
except ConfigError as error:
    print(error, file=sys.stderr)
    raise SystemExit(2) from None

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = FLEETSITE.django_secret_key.get_secret_value()
DEBUG = FLEETSITE.django_debug
ALLOWED_HOSTS = list(FLEETSITE.django_allowed_hosts)

ROOT_URLCONF = "fleetsite.urls"
WSGI_APPLICATION = "fleetsite.wsgi.application"
ASGI_APPLICATION = "fleetsite.asgi.application"

INSTALLED_APPS = [
    "unfold",  # before the admin, whose templates it replaces
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_prometheus",
    "csp",
    "axes",
    "sessions_app.apps.SessionsAppConfig",
    "dispatch.apps.DispatchConfig",
    "fleet.apps.FleetConfig",
]

MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "fleetsite.content_policy.ContentPolicyMiddleware",
    "axes.middleware.AxesMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # in a checkout beside the packages, in an installation inside this one
        "DIRS": [BASE_DIR / "templates", BASE_DIR / "fleetsite" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# -- stores
DATABASES = {"default": state_store(FLEETSITE)}
DATABASE_ROUTERS = ["dispatch.routers.QueueTableRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- REST
APPEND_SLASH = False
DATA_UPLOAD_MAX_MEMORY_SIZE = 9 * 1024 * 1024  # the largest body, of dispatch_many, and some room for its envelope

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["fleet.api.authentication.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["dispatch.api.permissions.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["dispatch.api.parsing.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "fleetsite.api_errors.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}

SPECTACULAR_SETTINGS = {
    "OAS_VERSION": "3.1.0",
    "ENUM_NAME_OVERRIDES": {
        "JobStatus": "dispatch.states.PUBLIC_STATUSES",
        "SessionStatus": "sessions_app.states.STATUSES",
        "EvidenceStatus": ["healthy", "partial", "degraded", "unavailable"],
        "ControlOutcome": ["applied", "already"],
        "SteerOutcome": ["applied", "requested", "already", "not_found"],
        "GateScope": ["fleet", "kind", "agent", "tenant"],
        "LimitScope": ["agent", "tenant"],
    },
    "TITLE": "Fleetsite",
    "DESCRIPTION": "Runs agent turns for a fleet: dispatch a task, get a job handle back, ask about it.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["dispatch.api.permissions.HasScope"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

# -- pages
LOGIN_URL = "/admin/login/"
LOGIN_REDIRECT_URL = "/admin/"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
# Who guesses passwords is locked out, by name and address: a stranger elsewhere does not lock out the person on call.
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_CALLABLE = "fleet.console.sign_in.locked_out"
AXES_DISABLE_ACCESS_LOG = True
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

# Served from where the packages keep them, so that nothing has to be collected first; an image has them collected.
STATIC_URL = "/static/"
STATIC_ROOT = str(BASE_DIR / "staticfiles") if (BASE_DIR / "staticfiles").is_dir() else None
WHITENOISE_USE_FINDERS = STATIC_ROOT is None
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

# -- security
CONTENT_SECURITY_POLICY = {"DIRECTIVES": PAGE_POLICY}
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SECURE_REFERRER_POLICY = "same-origin"
# The server speaks plain HTTP; TLS ends in the proxy in front of it, which redirects to it and may promise more.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W008", "security.W021"]
if FLEETSITE.django_https:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
else:  # plain HTTP on loopback, or behind what ends TLS and does not say so
    SILENCED_SYSTEM_CHECKS += ["security.W004", "security.W012", "security.W016"]

# -- language and time
LANGUAGE_CODE = "en-us"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True
